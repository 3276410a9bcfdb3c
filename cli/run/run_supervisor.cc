#include "cli/run/run_supervisor.h"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/gang/rank_end.h"
#include "cli/run/run_sentences.h"
#include "common/files/replace_file.h"
#include "common/format.h"
#include "common/startup_table.h"
#include "common/startup_trace.h"
#include "common/text.h"
#include "job/contract.h"
#include "job/restart_budget.h"

namespace dsj::cli {

using namespace std::chrono_literals;
using namespace dsj::contract;

std::string agent_config_file(const agent::AgentConfig& config) {
  return path_join(config.run_dir, "agent.json");
}

std::string startup_file(const agent::AgentConfig& config) {
  return path_join(config.run_dir, kStartupFile);
}

std::string logs_dir(const agent::AgentConfig& config) {
  return path_join(config.job.output_dir, kLogsDir);
}

Supervisor::Supervisor(SupervisorOptions options, SupervisorPorts ports)
    : options_(std::move(options)),
      ports_(ports),
      status_(options_.previous_status, options_.config.replicas * options_.config.slots,
              options_.config.replicas, ports_.clock.time_of_day()),
      progress_(ports_.out, ports_.terminal,
                options_.config.job.training.logging_steps.has_value()),
      agents_(options_.workers_here > 0 ? options_.workers_here : options_.config.replicas) {}

int Supervisor::run() {
  for (auto& life : agents_) life.start_at = ports_.clock.now();
  while (!outcome_ || !all_gone()) turn();
  ports_.agents.kill_strays();
  keep_status(true);
  progress_.clear();
  return farewell();
}

bool Supervisor::all_gone() const {
  for (int worker = 0; worker < workers(); ++worker) {
    if (ports_.agents.runs(worker)) return false;
  }
  return true;
}

void Supervisor::turn() {
  start_due_agents();
  ports_.agents.wait();
  for (int requests = ports_.agents.take_stop_requests(); requests > 0; --requests)
    take_stop("all ranks save the same step");
  if (ports_.agents.take_stacks_request()) {
    ports_.agents.ask_for_stacks();
    progress_.print(ports_.err, "the stacks of all threads go to " +
                                    path_join(logs_dir(options_.config), "agent-*.log"));
  }
  read_reports();
  reap_agents();
  stop_without_reader();
  ports_.agents.bury_strays();
  const Time now = ports_.clock.now();
  if (kill_at_ && now >= *kill_at_) kill_agents();
  keep_status(false);
  if (drawn_ && now - *drawn_ < 100ms) return;  // there may be thousands of steps
  drawn_ = now;
  progress_.redraw();
}

// ---- agents

Status Supervisor::write_config() {
  const mode_t before = umask(077);  // the file contains the key
  const Status written = replace_file(ports_.files, agent_config_file(options_.config),
                                      agent::to_text(options_.config));
  umask(before);
  return written;
}

Status Supervisor::start_agent(int worker) {
  AgentLife& life = agents_[worker];
  life.start_at.reset();
  ++life.incarnation;
  DSJ_TRY_STATUS(write_config());
  if (worker == 0) report_bytes_.clear();
  DSJ_TRY_STATUS(ports_.agents.start(worker, life.incarnation));
  if (worker == workers() - 1 && life.incarnation == 1) {
    startup::recorder().stage_ends("agents launched");
    startup::append_line(startup_file(options_.config), 0);
  }
  return {};
}

void Supervisor::start_due_agents() {
  for (int worker = 0; worker < workers(); ++worker) {
    if (!agents_[worker].start_at || ports_.clock.now() < *agents_[worker].start_at) continue;
    if (outcome_ || stopping_) {
      agents_[worker].start_at.reset();
      if (!outcome_) {
        end({kExitPreempted, "StoppedWithoutCheckpoint", "stopped while no agent was running"});
      }
      continue;
    }
    if (const auto started = start_agent(worker); !started) {
      end({kExitEnvironment, "CannotStart", started.error().to_string()});
    }
  }
}

void Supervisor::reap_agents() {
  for (int worker = 0; worker < workers(); ++worker) {
    const auto exit = ports_.agents.take_exit(worker);
    if (!exit) continue;
    read_reports();  // the last reports precede the exit
    if (!outcome_) agent_died(worker, *exit);
  }
}

/// Handles an agent that ended before the job.
void Supervisor::agent_died(int worker, const agent::ChildExit& exit) {
  const std::string what = "the agent of worker " + std::to_string(worker) + " ended with " +
                           agent::describe_exit(exit.exit_code, exit.signal);
  const std::string log = agent_log(logs_dir(options_.config), worker);
  const bool not_started = exit.signal == 0 && exit.exit_code == kExitNotStarted;
  if (not_started || (exit.signal == 0 && ends_the_job(exit.exit_code))) {
    progress_.print(ports_.err, quoted(ports_.agents.last_words(worker)));
    return end({not_started ? kExitEnvironment : exit.exit_code, "AgentFailed",
                what + "; its log: " + log});
  }
  if (stopping_) {
    if (worker != 0) return;  // worker 0's agent notices it and ends the job
    return end({kExitPreempted, "StoppedWithoutCheckpoint", what});
  }
  auto pause = 0ms;
  if (worker == 0) {
    const auto verdict = charge_restart(options_.config.budget, status_.saved_step().value_or(-1));
    options_.config.budget = verdict.budget;
    take_report(report::Failure{.attempt = status_.attempt(),
                                .worker = 0,
                                .step = status_.step(),
                                .reason = "WorkerLost",
                                .message = what,
                                .pause_ms = verdict.pause.count(),
                                .restarts_used = verdict.budget.used,
                                .restarts_total = verdict.budget.total,
                                .restart_limit = verdict.budget.limit,
                                .saved_step = verdict.budget.saved_step,
                                .restart = verdict.allowed});
    if (!verdict.allowed) return end({kExitFailed, "BackoffLimitExceeded", what});
    pause = verdict.pause;
    options_.config.predecessor = true;
    options_.config.last_attempt = status_.attempt();
  } else {
    // Worker 0's agent counts the failures of the job. An agent that cannot stay up is counted
    // here.
    if (agents_[worker].incarnation > 10) {
      return end({kExitFailed, "AgentFailed", what + " for the 10th time; its log: " + log});
    }
    pause = 500ms;
    progress_.print(ports_.err, what + "; it is started again");
  }
  agents_[worker].start_at = ports_.clock.now() + pause;
}

void Supervisor::end(Outcome outcome) {
  if (outcome_) return;
  take_report(report::End{
      .exit_code = outcome.exit_code, .reason = outcome.reason, .message = outcome.message});
  kill_agents();
}

void Supervisor::kill_agents() {
  kill_at_.reset();
  for (int worker = 0; worker < workers(); ++worker) ports_.agents.kill(worker);
}

// ---- signals

/// As when a terminal is closed: the ranks save a step, from which the run can continue.
void Supervisor::stop_without_reader() {
  if (stopping_ || outcome_ || !progress_.reader_gone()) return;
  take_stop("the reader of the output is gone: all ranks save the same step");
}

void Supervisor::take_stop(const std::string& why) {
  if (killed_ || outcome_) return;
  if (stopping_) {
    killed_ = true;
    progress_.print(ports_.err, "killed at once; nothing more is saved");
    return end({kExitPreempted, "StoppedWithoutCheckpoint", "killed on the second request"});
  }
  stopping_ = true;
  status_.stopping(why, ports_.clock.time_of_day());
  status_dirty_ = true;
  progress_.print(ports_.err, "stopping: " + why + " (once more to kill at once)");
  for (int worker = 0; worker < workers(); ++worker) ports_.agents.ask_to_stop(worker);
}

// ---- reports

void Supervisor::read_reports() {
  report_bytes_ += ports_.agents.read_reports();
  size_t start = 0;
  for (size_t end; (end = report_bytes_.find('\n', start)) != std::string::npos; start = end + 1) {
    const auto told = report::report_from_line(report_bytes_.substr(start, end - start));
    if (told) take_report(*told);
  }
  report_bytes_.erase(0, start);
}

ProgressView Supervisor::view() const {
  return {.label = stopping_            ? "saving"
                   : status_.step() > 0 ? ""
                                        : "starting",
          .line = {.step = status_.step(),
                   .total = status_.total_steps(),
                   .loss = last_step_.loss,
                   .lr = last_step_.lr,
                   .grad_norm = last_step_.grad_norm,
                   .tokens_per_second = last_step_.tokens_per_second},
          .seconds_left = status_.seconds_left()};
}

void Supervisor::take_report(const report::Report& told) {
  status_.take(told, ports_.clock.time_of_day());
  status_dirty_ = true;
  if (const auto line = logged_.take(told)) {
    return progress_.line({.line = *line, .seconds_left = status_.seconds_left()});
  }
  const auto* step = std::get_if<report::Step>(&told);
  if (step) {
    last_step_ = *step;
    tell_start();
  }
  progress_.show(view());
  const auto* warning = std::get_if<report::Warning>(&told);
  if (warning && std::ranges::any_of(options_.told, [&](const std::string& message) {
        return warning->message.ends_with(message);
      }))
    return;  // the check before the start has printed it
  if (const auto said = sentence_of(told, status_, options_.config.job.output_dir)) {
    progress_.print(said->is_problem ? ports_.err : ports_.out, said->text);
  }
  tell_saved(told);
  if (step) return;
  if (const auto* failure = std::get_if<report::Failure>(&told)) {
    options_.config.budget.used = static_cast<int>(failure->restarts_used);
    options_.config.budget.total = static_cast<int>(failure->restarts_total);
    options_.config.budget.saved_step = failure->saved_step;
  } else if (const auto* end = std::get_if<report::End>(&told)) {
    tell_start();  // if the job has so few steps that a rank reported its start late
    outcome_ = Outcome{static_cast<int>(end->exit_code), end->reason, end->message};
    kill_at_ = ports_.clock.now() + 15s;  // until then the agents should have exited
  }
  keep_status(!std::holds_alternative<report::Warning>(told));
}

void Supervisor::tell_saved(const report::Report& told) {
  const auto* end = std::get_if<report::End>(&told);
  const bool saved =
      std::holds_alternative<report::Checkpoint>(told) || (end && end->exit_code == kExitDone);
  if (!saved || !options_.when_saved) return;
  for (const std::string& warning : std::exchange(options_.when_saved, {})())
    progress_.print(ports_.err, "warning: " + warning);
}

void Supervisor::keep_status(bool now) {
  const bool soon = status_written_ && ports_.clock.now() - *status_written_ < 1s;
  if (!status_dirty_ || (!now && soon)) return;
  const auto written = ports_.files.write_atomically(
      path_join(options_.config.job.output_dir, kStatusFile), status_to_text(status_.object()));
  status_written_ = ports_.clock.now();
  status_dirty_ = false;
  if (!written && !status_failed_) {
    status_failed_ = true;
    progress_.print(ports_.err, "warning: " + written.error().to_string());
  }
}

/// Rank 0's first step may precede another rank's start report; the next step tries again.
void Supervisor::tell_start() {
  if (!options_.startup_trace || status_.attempt() == start_told_ || status_.step() == 0) return;
  const auto lines = ports_.files.read_all(startup_file(options_.config));
  if (!lines) return;
  const int ranks = options_.config.replicas * options_.config.slots;
  auto table = startup::table(*lines, status_.attempt(), ranks);
  if (!table) return;
  start_told_ = status_.attempt();
  table->pop_back();  // print() adds the line end
  progress_.print(ports_.out, *table);
}

std::optional<int64_t> Supervisor::newest_checkpoint() const {
  std::optional<int64_t> newest;
  const auto entries =
      ports_.files.list_dir(path_join(options_.config.job.output_dir, kCheckpointsDir));
  if (!entries) return status_.saved_step();
  constexpr std::string_view kPrefix = "step-";
  for (const DirEntry& entry : *entries) {
    if (!entry.name.starts_with(kPrefix)) continue;
    const auto step = text::parse_int(std::string_view(entry.name).substr(kPrefix.size()));
    if (step) newest = std::max(newest.value_or(0), *step);
  }
  return newest ? newest : status_.saved_step();
}

int Supervisor::farewell() {
  const auto saved = newest_checkpoint();
  const std::string from = saved ? "step " + std::to_string(*saved) : "the start";
  switch (outcome_->exit_code) {
    case kExitDone: {
      std::string text = "done";
      if (status_.step() > 0) text += ": step " + std::to_string(status_.step());
      if (last_step_.loss) text += ", loss " + report::shown_number("%.4f", *last_step_.loss);
      std::fprintf(ports_.out, "%s\n", text.c_str());
      return 0;
    }
    case kExitPreempted:
      std::fprintf(ports_.err, "interrupted: %s\nto continue from %s, run it again: %s\n",
                   outcome_->message.c_str(), from.c_str(), options_.resume_command.c_str());
      return kExitInterrupted;
    default:
      break;
  }
  std::fprintf(ports_.err, "dsj run: failed: %s: %s\n", outcome_->reason.c_str(),
               outcome_->message.c_str());
  if (outcome_->exit_code == kExitFailed) {
    std::fprintf(ports_.err, "to continue from %s, run it again: %s\n", from.c_str(),
                 options_.resume_command.c_str());
  }
  const int code = outcome_->exit_code;
  return ends_the_job(code) || code == agent::kExitNodesMissing ? code : kExitFailed;
}

}  // namespace dsj::cli
