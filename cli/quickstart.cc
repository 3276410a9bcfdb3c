// dsj quickstart: makes a small model and rows, asks it held-out questions, trains it with `dsj
// run`, and asks again. Each part is a program that a user can call; `make run` calls this verb.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "cli/exit_codes.h"
#include "cli/programs.h"
#include "cli/result_format.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "common/files/posix_files.h"
#include "common/json.h"
#include "job/contract.h"
#include "job/missing_library.h"

namespace dsj::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::array kTasks = {"sums", "reversals", "lookups"};
/// Number of questions per task before training. A random model generates the maximum number of
/// tokens for each, which delays the first loss. After training all questions are asked.
constexpr const char* kAskedBefore = "20";
/// Everything that a quickstart writes into its directory. Others are not removed.
constexpr std::array kEntries = {"answers", "data", "ds_config.json", "job.yaml", "model", "run"};

/// Held-out answers of one task.
struct Answers {
  int64_t exact = 0, judged = 0;
  std::string example;  ///< the first question with its answer
  double share() const { return judged > 0 ? double(exact) / double(judged) : 0; }
};

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

/// Removes an earlier quickstart. Errors: BadInput if the directory has other entries.
Status clear(Files& files, const std::string& directory) {
  DSJ_TRY(const bool there, files.exists(directory));
  if (!there) return {};
  DSJ_TRY(const auto entries, files.list_dir(directory));
  for (const DirEntry& entry : entries) {
    if (std::ranges::find(kEntries, entry.name) == kEntries.end())
      return bad_input("the directory is not a quickstart's: it has \"" + entry.name + "\"",
                       directory, "name a new directory: dsj quickstart DIR");
  }
  return files.remove_all(directory);
}

/// Watches for the first step during a run.
class FirstStep {
 public:
  FirstStep(const std::string& metrics_file, SteadyClock::time_point begin)
      : thread_([this, metrics_file, begin](std::stop_token stop) {
          PosixFiles files;
          while (!stop.stop_requested() && !seconds_) {
            const auto text = files.read_all(metrics_file);
            if (text && text->find('\n') != std::string::npos) seconds_ = seconds_since(begin);
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          }
        }) {}

  /// Stops watching. nullopt if there was no step.
  std::optional<double> seconds() {
    thread_.request_stop();
    if (thread_.joinable()) thread_.join();
    return seconds_;
  }

 private:
  std::optional<double> seconds_;
  std::jthread thread_;
};

class Quickstart {
 public:
  Quickstart(std::string directory, std::vector<std::string> maker_arguments)
      : directory_(std::move(directory)), maker_arguments_(std::move(maker_arguments)) {}

  Result<int> run() {
    DSJ_TRY(own_, program_beside("dsj"));
    DSJ_TRY(const std::string maker, program_beside("dsj-make-quickstart"));
    DSJ_TRY(const std::string engine, engine_program());
    DSJ_TRY_STATUS(clear(files_, directory_));
    std::vector<std::string> make = {maker, "--output", directory_};
    make.insert(make.end(), maker_arguments_.begin(), maker_arguments_.end());
    DSJ_TRY(int code, run_to_the_end(make));
    if (code != 0) return code;
    DSJ_TRY_STATUS(files_.make_dir(in("answers")));
    DSJ_TRY(code, ask("before", in("model"), {"--limit", kAskedBefore}));
    if (code == contract::kExitNotStarted)
      return fail(ErrorKind::Environment, kMissingLibrary, engine);
    if (code != 0) return code;
    FirstStep first(in("run/metrics.jsonl"), begin_);
    DSJ_TRY(code, run_to_the_end({own_, "run", in("job.yaml")}));
    const auto first_loss = first.seconds();
    if (code != 0) return code;
    DSJ_TRY(code, ask("after", in("run/model")));
    if (code != 0) return code;
    DSJ_TRY(code, run_to_the_end({own_, "plot", in("run")}, "/dev/null"));
    if (code != 0) return code;
    return show(first_loss);
  }

  /// The result of run(), for -o json; null if it did not finish.
  const nlohmann::json& result() const { return result_; }

 private:
  std::string in(const std::string& name) const { return path_join(directory_, name); }
  std::string answers_file(const std::string& when, const std::string& task) const {
    return in("answers/" + when + "-" + task + ".jsonl");
  }

  Result<int> ask(const std::string& when, const std::string& model,
                  const std::vector<std::string>& more = {}) const {
    for (const std::string task : kTasks) {
      std::vector<std::string> command = {own_,
                                          "generate",
                                          "--model",
                                          model,
                                          "--data",
                                          in("data/heldout-" + task + ".json"),
                                          "--max-new-tokens",
                                          "32",
                                          "-o",
                                          "json"};
      command.insert(command.end(), more.begin(), more.end());
      DSJ_TRY(const int code, run_to_the_end(command, answers_file(when, task)));
      if (code != 0) return code;
    }
    return 0;
  }

  /// The last line of the file has the counts; the others are answers.
  Result<Answers> answers(const std::string& when, const std::string& task) {
    const std::string path = answers_file(when, task);
    DSJ_TRY(const std::string text, files_.read_all(path));
    Answers all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line, nullptr, false);
      if (row.is_discarded()) return bad_input("a line is not JSON: " + line.substr(0, 60), path);
      if (all.example.empty()) {
        const std::string input = json_text(row, "input");
        all.example = json_text(row, "instruction") + (input.empty() ? "" : " " + input) + " -> " +
                      json_text(row, "completion");
      }
      all.exact = json_whole(row, "exact").value_or(0);
      all.judged = json_whole(row, "judged").value_or(0);
    }
    return all;
  }

  Result<int> show(std::optional<double> first_loss) {
    nlohmann::json tasks = nlohmann::json::object();
    const auto document = [](const Answers& answers) {
      return nlohmann::json{{"exact", answers.exact}, {"judged", answers.judged}};
    };
    std::printf("\n%-20s %12s %12s   one answer after training\n", "held-out questions", "before",
                "after");
    bool learnt = true;
    for (const std::string task : kTasks) {
      DSJ_TRY(const Answers before, answers("before", task));
      DSJ_TRY(const Answers after, answers("after", task));
      learnt &= after.judged > 0 && after.share() >= before.share() + 0.5;
      std::printf("%-20s %6lld / %-3lld %6lld / %-3lld   %s\n", task.c_str(),
                  static_cast<long long>(before.exact), static_cast<long long>(before.judged),
                  static_cast<long long>(after.exact), static_cast<long long>(after.judged),
                  after.example.c_str());
      tasks[task] = {
          {"before", document(before)}, {"after", document(after)}, {"example", after.example}};
    }
    const std::string run = in("run");
    std::printf(
        "\nmodel      %s/model, a Hugging Face directory\n"
        "curves     %s/plot.html, a page; in the terminal: dsj plot %s\n"
        "read next  docs/quickstart.md: the same by hand, a stop and a resume, ZeRO-3\n",
        run.c_str(), run.c_str(), run.c_str());
    if (first_loss)
      std::printf("time       first loss after %.0f s, end after %.0f s\n", *first_loss,
                  seconds_since(begin_));
    result_ = {{"directory", directory_},
               {"model", run + "/model"},
               {"tasks", tasks},
               {"learnt", learnt},
               {"seconds", seconds_since(begin_)}};
    if (first_loss) result_["firstLossSeconds"] = *first_loss;
    if (learnt) return kExitOk;
    std::fprintf(
        stderr,
        "dsj quickstart: a task was not learnt: the share of right answers did not rise by half\n");
    return kExitRefused;
  }

  nlohmann::json result_;
  const SteadyClock::time_point begin_ = SteadyClock::now();
  PosixFiles files_;
  std::string directory_, own_;
  std::vector<std::string> maker_arguments_;
};

}  // namespace

int run_quickstart(Arguments args) {
  std::string directory = "dsj-quickstart", seed, size, format;
  ArgumentParser parser{
      "Makes a small random model and rows, asks the model held-out questions, trains it on two "
      "ranks, and asks again. Exit code 1: it did not learn every task.",
      "dsj quickstart"};
  parser.option("DIR", directory, "the directory to write; replaces an earlier quickstart")
      .show_default();
  parser.option("--seed", seed, "seed of the weights and the rows (1)");
  parser.option("--size", size, "size of the model (small)").one_of({"small", "tiny"});
  add_format_and_output(parser, format);
  if (const auto over = parser.parse(args)) return *over;
  std::vector<std::string> maker;
  for (const auto& [name, value] : {std::pair{"--seed", seed}, std::pair{"--size", size}})
    if (!value.empty()) maker.insert(maker.end(), {name, value});
  JsonResult result(format);
  Quickstart quickstart(directory, std::move(maker));
  const auto code = quickstart.run();
  if (!quickstart.result().is_null()) result.print(quickstart.result());
  return code ? *code : report("quickstart", code.error());
}

}  // namespace dsj::cli
