// dsj plot OUT...: draws runs' curves in the terminal and as a page.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "cli/check/run_lock.h"
#include "cli/plot/plot_data.h"
#include "cli/plot/plot_page.h"
#include "cli/plot/plot_picture.h"
#include "cli/plot/plot_text.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/json.h"
#include "common/terminal.h"

namespace dsj::cli {
namespace {

constexpr int kAgainSeconds = 2;
/// The phase of a run that was killed before it could write its status.
constexpr char kKilled[] = "Killed";

struct PlotOptions {
  std::vector<std::string> directories;
  std::string page, svg, format;
  bool ascii = false, watch = false;
};

std::string phase_of(const RunCurves& run) {
  return json_text(run.status, "phase");
}

bool is_over(const RunCurves& run) {
  const std::string phase = phase_of(run);
  return phase == "Complete" || phase == "Failed" || phase == "Interrupted" || phase == kKilled;
}

/// Draws once. True if every run has ended.
Result<bool> draw(const PlotOptions& options) {
  PosixFiles files;
  std::vector<RunCurves> runs;
  const auto names = run_names(options.directories);
  for (size_t i = 0; i < names.size(); ++i) {
    DSJ_TRY(auto run, read_curves(files, options.directories[i]));
    run.name = names[i];
    if (was_killed(options.directories[i], run.status)) run.status["phase"] = kKilled;
    runs.push_back(std::move(run));
  }
  const Terminal screen = terminal();
  // Other lines on the screen: a run's name, an empty line, the page's name and the prompt.
  const int lines =
      screen.lines > 0
          ? std::max(1, (screen.lines - 2) / std::max(1, static_cast<int>(runs.size())) - 2)
          : 0;
  std::string text;
  bool over = true;
  for (const RunCurves& run : runs) {
    text += run.name + ": " + std::to_string(run.steps) + " steps" +
            (phase_of(run) == kKilled ? "; the run was killed with all its processes, and its "
                                        "status.yaml still says that it "
                                        "goes on"
                                      : "") +
            "\n\n";
    text += charts_text(run.curves,
                        {.columns = screen.columns, .ascii = options.ascii || screen.ascii}, lines);
    over = over && is_over(run);
  }
  const int again = options.watch && !over ? kAgainSeconds : 0;
  const std::string page =
      options.page.empty() ? path_join(options.directories.front(), "plot.html") : options.page;
  const Status written = files.write_atomically(page, plot_page(runs, again));
  if (!written && !options.page.empty()) return std::unexpected(written.error());
  if (!options.svg.empty()) {
    DSJ_TRY(const std::string svg, plot_svg(runs, "loss"));
    DSJ_TRY_STATUS(files.write_atomically(options.svg, svg));
  }
  if (options.format == "json") {
    nlohmann::json all = nlohmann::json::array();
    for (const RunCurves& run : runs) all.push_back(to_json(run));
    std::fputs(
        document_text({{"page", written ? nlohmann::json(page) : nlohmann::json()}, {"runs", all}})
            .c_str(),
        stdout);
    return over;
  }
  if (options.watch && draws_over(STDOUT_FILENO)) std::fputs("\x1b[H\x1b[2J", stdout);
  std::printf("%s%s%s\n", text.c_str(), written ? "page: " : "no page: ",
              written ? page.c_str() : written.error().to_string().c_str());
  if (!written) std::puts("--page FILE names another place for it");
  std::fflush(stdout);
  return over;
}

}  // namespace

int run_plot(Arguments args) {
  ArgumentParser parser{
      "Draws loss, lr, grad_norm and tokens per second of runs in the terminal, and writes a page "
      "with the same curves to OUT/plot.html. Several OUTs share one page.",
      "dsj plot"};
  PlotOptions options;
  parser.option("OUT", options.directories, "output directory of a run").required();
  parser.option("--page", options.page,
                "the page's file (OUT/plot.html of the first OUT, if it can be written there)");
  parser.option("--svg", options.svg, "also the loss curve as a picture file");
  parser.flag("--ascii", options.ascii, "stars instead of Braille dots");
  const auto watch =
      parser.flag("--watch", options.watch, "redraws every two seconds until the runs end");
  add_format_and_output(parser, options.format).excludes(watch);
  if (const auto over = parser.parse(args)) return *over;
  while (true) {
    const auto over = draw(options);
    if (!over) return report("plot", over.error());
    if (!options.watch || *over) return 0;
    const timespec pause{kAgainSeconds, 0};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace dsj::cli
