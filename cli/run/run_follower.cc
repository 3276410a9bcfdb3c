#include "cli/run/run_follower.h"

#include <utility>

#include "agent/gang/rank_end.h"
#include "cli/run/run_status.h"
#include "cli/run/run_supervisor.h"
#include "common/json.h"
#include "job/contract.h"

namespace dsj::cli {

using namespace std::chrono_literals;
using namespace dsj::contract;

namespace {

constexpr auto kLook = 1s;
constexpr int64_t kLivesMost = 10;

}  // namespace

Follower::Follower(FollowerOptions options, FollowerPorts ports)
    : options_(std::move(options)),
      ports_(ports),
      incarnation_(options_.first_life - 1),
      waiting_since_(ports_.clock.now()) {}

std::string Follower::who() const {
  return "node " + std::to_string(options_.nodes.rank) + " of " +
         std::to_string(options_.nodes.count);
}

int Follower::run() {
  std::fprintf(ports_.out, "%s: waits for node 0 in %s\n", who().c_str(),
               options_.output_dir.c_str());
  std::fflush(ports_.out);
  while (!exit_code_ || ports_.agents.runs(options_.nodes.rank)) turn();
  ports_.agents.kill_strays();
  return *exit_code_;
}

void Follower::turn() {
  start_if_due();
  ports_.agents.wait();
  for (int requests = ports_.agents.take_stop_requests(); requests > 0; --requests) take_stop();
  reap();
  ports_.agents.bury_strays();
  if (!exit_code_) look_for_a_run();
}

void Follower::end(int exit_code, const std::string& told) {
  if (exit_code_) return;
  exit_code_ = exit_code;
  std::fprintf(exit_code == kExitDone ? ports_.out : ports_.err, "%s: %s\n", who().c_str(),
               told.c_str());
  std::fflush(ports_.out);
}

/// The agent forwards it to worker 0's agent; the whole job saves one step.
void Follower::take_stop() {
  if (exit_code_) return;
  const bool runs = ports_.agents.runs(options_.nodes.rank);
  if (stopping_ || !runs) {
    if (runs) ports_.agents.kill(options_.nodes.rank);
    return end(kExitInterrupted, runs ? "killed at once" : "stopped while it waited");
  }
  stopping_ = true;
  std::fprintf(ports_.err,
               "%s: stopping: all ranks save the same step (once more to kill at once)\n",
               who().c_str());
  ports_.agents.ask_to_stop(options_.nodes.rank);
}

/// Reads node 0's configuration. If it names another run than the agent's, node 0 restarted.
void Follower::look_for_a_run() {
  const Time now = ports_.clock.now();
  if (next_look_ && now < *next_look_) return;
  next_look_ = now + kLook;
  const auto text = ports_.files.read_all(options_.config_file);
  const auto config = text ? agent::agent_config_from_text(*text, options_.config_file)
                           : Result<agent::AgentConfig>(std::unexpected(text.error()));
  if (config && config->job.run != run_) {
    // The file may be from an earlier run on other machines.
    const bool fits = config->replicas == options_.nodes.count && config->slots == options_.slots;
    mismatch_ = fits ? ""
                     : "node 0 has " + std::to_string(config->replicas) + " nodes with " +
                           std::to_string(config->slots) + " ranks each, this line " +
                           std::to_string(options_.nodes.count) + " with " +
                           std::to_string(options_.slots);
    if (fits && config->gather_limit > Time(0)) options_.patience = config->gather_limit;
    if (fits && !stopping_) {
      run_ = config->job.run;
      lives_ = 0;
      gave_up_ = false;
      if (ports_.agents.runs(options_.nodes.rank)) ports_.agents.kill(options_.nodes.rank);
      start_at_ = now;
      return;
    }
  }
  if (ports_.agents.runs(options_.nodes.rank) || start_at_) return;
  if (now - waiting_since_ < options_.patience) return;
  if (!mismatch_.empty()) return end(kExitBadInput, mismatch_ + ": all nodes run the same line");
  const std::string waited = " (waited " + std::to_string(options_.patience.count() / 1000) + " s)";
  if (gave_up_) return end(agent::kExitNodesMissing, "node 0 no longer answers" + waited);
  end(agent::kExitNodesMissing,
      "node 0 has not begun: " + options_.config_file + " is not there" + waited +
          ". Run the same line with --node_rank 0 on node 0, let all nodes share the output "
          "directory, or allow more time: --rdzv_conf timeout=SECONDS");
}

void Follower::start_if_due() {
  if (exit_code_ || !start_at_ || ports_.clock.now() < *start_at_) return;
  if (ports_.agents.runs(options_.nodes.rank)) return;  // the old run's agent is being killed
  start_at_.reset();
  ++lives_;
  ++incarnation_;
  if (const auto started = ports_.agents.start(options_.nodes.rank, incarnation_); !started)
    return end(kExitEnvironment, started.error().to_string());
  if (lives_ > 1) return;
  std::fprintf(ports_.out, "%s: joins node 0; the logs of its ranks are in %s\n", who().c_str(),
               path_join(options_.output_dir, kLogsDir).c_str());
  std::fflush(ports_.out);
}

void Follower::reap() {
  const auto exit = ports_.agents.take_exit(options_.nodes.rank);
  if (!exit || exit_code_ || start_at_) return;
  waiting_since_ = ports_.clock.now();
  const std::string log = agent_log(path_join(options_.output_dir, kLogsDir), options_.nodes.rank);
  if (exit->signal == 0) switch (exit->exit_code) {
      case kExitDone:
        return end(kExitDone, "done");
      case kExitFailed:
        return end(kExitFailed, "the job failed; node 0 says why");
      case kExitPreempted:
        return end(kExitInterrupted, "stopped; the same lines continue from the last checkpoint");
      case kExitPeerLost:
        return lost_node_zero();
      case agent::kExitNodesMissing:
        return end(agent::kExitNodesMissing,
                   "not all nodes have joined in time; node 0 says which");
      case kExitNotStarted:
        return end(kExitEnvironment,
                   "its agent cannot start: " + ports_.agents.last_words(options_.nodes.rank));
      default:
        if (ends_the_job(exit->exit_code))
          return end(exit->exit_code, "the job cannot go on; node 0 says why, or " + log);
    }
  const std::string what =
      "its agent ended with " + agent::describe_exit(exit->exit_code, exit->signal);
  if (stopping_) return end(kExitInterrupted, what);
  if (lives_ >= kLivesMost) return end(kExitFailed, what + " for the 10th time; its log: " + log);
  std::fprintf(ports_.err, "%s: %s; it is started again\n", who().c_str(), what.c_str());
  start_at_ = ports_.clock.now() + 500ms;
}

/// The final message of a complete job may have been lost. Otherwise node 0 may restart.
void Follower::lost_node_zero() {
  const std::string path = path_join(options_.output_dir, kStatusFile);
  const auto text = ports_.files.read_all(path);
  const auto status = text ? status_from_text(*text, path) : nlohmann::json();
  if (json_text(status, "phase") == "Complete") return end(kExitDone, "done");
  if (stopping_) return end(kExitInterrupted, "node 0 did not answer");
  gave_up_ = true;
  std::fprintf(ports_.err, "%s: node 0 does not answer; waits for it to begin again\n",
               who().c_str());
}

}  // namespace dsj::cli
