#include "cli/tune/tune_trials.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "agent/ranks/spawn.h"
#include "job/contract.h"
#include "job/missing_library.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

constexpr int kPollMs = 200;
constexpr int64_t kMetricsBytesMax = 64 << 20;

/// The last line that is not empty.
std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (line.find_first_not_of(" \t\r") != std::string::npos) last = line;
  return last;
}

/// Waits for the child. True if the user requested a stop meanwhile.
bool wait_for(pid_t pid, int signals, agent::ChildExit& exit) {
  bool asked = false;
  for (;;) {
    if (const auto ended = agent::reap(pid)) {
      exit = *ended;
      return asked;
    }
    pollfd entry{signals, POLLIN, 0};
    poll(&entry, 1, kPollMs);
    for (const int number : agent::read_signals(signals)) {
      if (number == SIGCHLD) continue;
      asked = true;
      ::kill(pid, number);  // `dsj run` forwards it to its agents
    }
  }
}

}  // namespace

TrialResult measured_steps(const std::string& metrics, int64_t first, int64_t last) {
  TrialResult result{.end = TrialResult::End::Ran};
  std::istringstream lines(metrics);
  for (std::string line; std::getline(lines, line);) {
    const json step = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!step.is_object() || !step.contains("step") || !step["step"].is_number_integer()) continue;
    const auto number = step["step"].get<int64_t>();
    if (number < first || number > last) continue;
    if (!step.value("step_seconds", json()).is_number() ||
        !step.value("tokens", json()).is_number())
      continue;
    result.step_seconds.push_back(step["step_seconds"]);
    result.tokens += step["tokens"].get<double>();
  }
  const bool whole = std::ssize(result.step_seconds) == last - first + 1 &&
                     std::ranges::all_of(result.step_seconds, [](double one) { return one > 0; });
  if (!whole)
    return {.failure = "metrics.jsonl lacks some of the steps " + std::to_string(first) + " to " +
                       std::to_string(last)};
  return result;
}

Result<TrialResult> LocalTrials::run(const Trial& trial) {
  std::error_code problem;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", problem).string();
  if (problem)
    return fail(ErrorKind::Environment, "cannot tell where this program is: " + problem.message(),
                "/proc/self/exe");
  DSJ_TRY(const int signals, agent::signal_fd({SIGINT, SIGTERM, SIGHUP, SIGCHLD}));
  const auto pid = agent::spawn({.command = {"/bin/sh", "-c",
                                             "exec \"$1\" run \"$2\" "
                                             ">\"$0/stdout.log\" 2>\"$0/stderr.log\"",
                                             trial.folder, self, trial.job_file},
                                 .environment = agent::inherited_environment(),
                                 .death_signal = SIGTERM});
  if (!pid) {
    close(signals);
    return std::unexpected(pid.error());
  }
  agent::ChildExit exit;
  const bool stopped = wait_for(*pid, signals, exit);
  close(signals);
  if (stopped) return TrialResult{.end = TrialResult::End::Interrupted};
  if (exit.signal != 0 || exit.exit_code != 0) {
    const auto said = files_.read_all(path_join(trial.folder, "stderr.log"));
    const std::string how = exit.signal ? "signal " + std::to_string(exit.signal)
                                        : "exit code " + std::to_string(exit.exit_code);
    if (exit.exit_code == contract::kExitEnvironment && said &&
        said->find(kMissingLibrary) != std::string::npos)
      return fail(ErrorKind::Environment, kMissingLibrary, path_join(trial.folder, "stderr.log"));
    const std::string last = said ? last_line(*said) : "";
    return TrialResult{.failure = how + (last.empty() ? "" : ": " + last)};
  }
  DSJ_TRY(const std::string metrics,
          files_.read_all(path_join(trial.output, contract::kMetricsFile), kMetricsBytesMax));
  return measured_steps(metrics, trial.first_step, trial.last_step);
}

}  // namespace dsj::cli
