// dsj plot JOB: draws the curves of a job in a cluster from the logs of worker 0's pods.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>

#include "cli/cluster/patience.h"
#include "cli/cluster/pods.h"
#include "cli/cluster/verbs.h"
#include "cli/plot/plot_data.h"
#include "cli/plot/plot_page.h"
#include "cli/plot/plot_text.h"
#include "cli/result_format.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/terminal.h"
#include "job/report/field_value.h"
#include "job/report/step_line.h"

namespace dsj::cli {
namespace {

constexpr kube::Milliseconds kAgain{10'000};
constexpr const char* kLoss = report::name_of<&report::Step::loss>();
constexpr const char* kLr = report::name_of<&report::Step::lr>();
constexpr const char* kGradNorm = report::name_of<&report::Step::grad_norm>();
constexpr const char* kSpeed = report::name_of<&report::Step::tokens_per_second>();

struct PlotJobOptions {
  ClusterFlags flags;
  std::string name, page, format;
  bool ascii = false, watch = false;
};

/// The logged steps. If several pods did a step, the last one counts.
class Steps {
 public:
  void take(const std::string& log_line) {
    const auto line = report::find_step_line(log_line);
    if (!line) return;
    last_ = std::max(last_, line->step);
    const auto put = [&](const char* name, const std::optional<double>& value) {
      if (value) values_[name][static_cast<double>(line->step)] = *value;
    };
    put(kLoss, line->loss);
    put(kLr, line->lr);
    put(kGradNorm, line->grad_norm);
    put(kSpeed, line->tokens_per_second);
  }

  RunCurves curves(const std::string& name, const Json& status) const {
    RunCurves run{.name = name, .steps = last_, .status = status};
    for (const char* curve : {kLoss, kLr, kGradNorm, kSpeed}) {
      const auto found = values_.find(curve);
      if (found != values_.end()) run.curves.push_back(curve_of(curve, found->second));
    }
    return run;
  }

 private:
  std::map<std::string, std::map<double, double>> values_;
  int64_t last_ = 0;
};

class PlotJob {
 public:
  PlotJob(const PlotJobOptions& options, Session& session) : options_(options), session_(session) {}

  int run() {
    while (true) {
      bool over = false;
      if (const int failed = draw(over); failed != 0) return failed;
      if (!options_.watch || over) return 0;
      if (session_.clock.sleep(kAgain, session_.cancel)) return 0;
    }
  }

 private:
  int draw(bool& over) {
    const auto job = session_.client.get(jobs_resource(), session_.ns, options_.name);
    if (!job) return refused("job " + options_.name, job.error());
    const auto pods = pods_of(session_, options_.name);
    if (!pods) return refused("pods of " + options_.name, pods.error());
    Steps steps;
    int read = 0;
    for (const PodRef& pod : *pods) {
      if (pod.worker != 0 || !has_log(pod)) continue;
      const auto done = read_log(session_, pod.name, {}, [&](const std::string& line) {
        steps.take(line);
        return true;
      });
      if (!done) return refused("pod " + pod.name, done.error());
      ++read;
    }
    patience_.renew();
    const Json* status = find(*job, "status");
    const RunCurves run = steps.curves(options_.name, status ? *status : Json());
    const std::string state = word(*job, "status.phase");
    over = state == "Complete" || state == "Failed" || state == "Suspended";
    if (run.curves.empty() && !options_.watch) return nothing(*job, read);
    const auto again = std::chrono::duration_cast<std::chrono::seconds>(kAgain).count();
    return show(*job, run, options_.watch && !over ? static_cast<int>(again) : 0);
  }

  /// Returns the exit code; 0 with --watch if the request will be retried.
  int refused(const std::string& what, const kube::ApiError& error) {
    if (options_.watch && patience_.lasts(error)) return 0;
    return report_api("plot", session_, what, error);
  }

  int nothing(const Json& job, int read) const {
    return report("plot",
                  Error{ErrorKind::Transient,
                        "no logged step in the logs of " + std::to_string(read) +
                            " pods of worker 0: the job is " + word(job, "status.phase"),
                        "job " + options_.name,
                        "steps are logged every spec.training.loggingSteps; every step is in " +
                            word(job, "spec.training.outputDir") +
                            "/metrics.jsonl, for `dsj plot OUT` where the volume is mounted"});
  }

  int show(const Json& job, const RunCurves& run, int again) const {
    if (!options_.page.empty()) {
      PosixFiles files;
      if (const auto written = files.write_atomically(options_.page, plot_page({run}, again));
          !written)
        return report("plot", written.error());
    }
    if (options_.format == "json") {
      const Json page = options_.page.empty() ? Json() : Json(options_.page);
      std::fputs(document_text({{"page", page}, {"runs", {to_json(run)}}}).c_str(), stdout);
      return 0;
    }
    if (options_.watch && draws_over(STDOUT_FILENO)) std::fputs("\x1b[H\x1b[2J", stdout);
    const std::string total = word(job, std::string("status.training.") +
                                            report::status_name<&report::Resolved::total_steps>());
    std::printf(
        "%s: step %s%s, %s; logged steps of worker 0's pods, all are in %s/metrics.jsonl\n\n",
        run.name.c_str(), std::to_string(run.steps).c_str(),
        total.empty() ? "" : (" of " + total).c_str(), word(job, "status.phase").c_str(),
        word(job, "spec.training.outputDir").c_str());
    const Terminal screen = terminal();
    std::fputs(charts_text(run.curves,
                           {.columns = screen.columns, .ascii = options_.ascii || screen.ascii},
                           screen.lines > 0 ? std::max(1, screen.lines - 4) : 0)
                   .c_str(),
               stdout);
    if (!options_.page.empty()) std::printf("page: %s\n", options_.page.c_str());
    std::fflush(stdout);
    return 0;
  }

  const PlotJobOptions& options_;
  Session& session_;
  Patience patience_{"plot", session_.clock};
};

/// Whether the arguments are output directories: there is no cluster flag, and a word is a path
/// or a directory.
bool means_directories(Arguments args) {
  bool words = false;
  for (const std::string& arg : args) {
    if (arg == "-n" || arg.starts_with("--namespace") || arg.starts_with("--context") ||
        arg.starts_with("--kubeconfig"))
      return false;
  }
  for (const std::string& arg : args) {
    std::error_code ignored;
    if (arg.starts_with("-")) continue;
    if (arg.contains('/') || std::filesystem::is_directory(arg, ignored)) return true;
    words = true;
  }
  return !words;  // show its help
}

}  // namespace

int run_plot_jobs(Arguments args, const Connect& connect) {
  ArgumentParser parser{
      "Draws loss, lr, grad_norm and tokens per second of a job's logged steps "
      "(spec.training.loggingSteps), read from the logs of worker 0's pods that still exist. "
      "Every step, and evaluations, are in OUTPUT/metrics.jsonl of the job's volume: where it is "
      "mounted, `dsj plot OUTPUT` draws those.",
      "dsj plot"};
  PlotJobOptions options;
  parser.option("NAME", options.name, "the job").required();
  add_cluster_flags(parser, options.flags);
  parser.option("--page", options.page, "also write a page with the curves to this file");
  parser.flag("--ascii", options.ascii, "stars instead of Braille dots");
  const auto watch =
      parser.flag("--watch", options.watch, "redraw every ten seconds until the job has ended");
  add_format_and_output(parser, options.format).excludes(watch);
  if (const auto over = parser.parse(args)) return *over;
  const auto session = connect(options.flags);
  if (!session) return report("plot", session.error());
  return PlotJob(options, **session).run();
}

int run_plot_any(Arguments args, const Connect& connect) {
  return means_directories(args) ? run_plot(args) : run_plot_jobs(args, connect);
}

}  // namespace dsj::cli
