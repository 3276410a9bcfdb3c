#include "cli/run_supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "agent/blame.h"
#include "common/contract.h"
#include "common/files/posix_files.h"
#include "common/restart_budget.h"

namespace dsj::cli {
namespace {

using namespace std::chrono_literals;
using namespace dsj::contract;
using nlohmann::json;

std::string time_of_day() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
std::optional<double> number_of(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

/// "  | " before every line.
std::string quoted(const std::string& text) {
  std::string result = "  | ";
  for (const char c : text) result += c == '\n' ? std::string("\n  | ") : std::string(1, c);
  return result;
}

}  // namespace

Supervisor::Supervisor(SupervisorOptions options)
    : options_(std::move(options)),
      status_(options_.previous_status, options_.config.replicas * options_.config.slots,
              options_.config.replicas, time_of_day()),
      progress_(stdout, isatty(STDOUT_FILENO) == 1),
      agents_(options_.config.replicas) {}

int Supervisor::run() {
  const auto fd = agent::signal_fd({SIGINT, SIGTERM, SIGHUP, SIGCHLD});
  if (!fd) {
    std::fprintf(stderr, "dsj run: %s\n", fd.error().to_string().c_str());
    return kExitEnvironment;
  }
  signal_fd_ = *fd;
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what an agent leaves behind becomes our child and is ended
  for (auto& life : agents_) life.start_at = Clock::now();
  while (!outcome_ || !all_gone()) turn();
  kill_strays();
  keep_status(true);
  progress_.clear();
  return farewell();
}

bool Supervisor::all_gone() const {
  return std::ranges::all_of(agents_, [](const AgentLife& life) { return life.pid < 0; });
}

void Supervisor::turn() {
  start_due_agents();
  wait();
  take_signals();
  read_reports();
  reap_agents();
  bury_strays();
  if (kill_at_ && Clock::now() >= *kill_at_) kill_agents();
  keep_status(false);
  if (Clock::now() - drawn_ < 100ms) return;  // there may be thousands of steps
  drawn_ = Clock::now();
  progress_.redraw();
}

void Supervisor::wait() {
  pollfd entries[] = {{signal_fd_, POLLIN, 0}, {report_fd_, POLLIN, 0}};
  poll(entries, 2, 200);
}

// ---- agents

Status Supervisor::write_config() {
  PosixFiles files;
  const std::string path = options_.config.run_dir + "/agent.json";
  const mode_t before = umask(077);  // the file holds the key
  const Status written = files.write_atomically(path, agent::to_text(options_.config));
  umask(before);
  return written;
}

std::vector<std::string> Supervisor::environment() const {
  std::vector<std::string> all = agent::inherited_environment();
  for (const auto& [name, value] : options_.environment) {
    std::erase_if(all, [&](const std::string& entry) { return entry.starts_with(name + "="); });
    all.push_back(name + "=" + value);
  }
  return all;
}

Status Supervisor::start_agent(int worker) {
  AgentLife& life = agents_[worker];
  life.start_at.reset();
  ++life.incarnation;
  DSJ_TRY_STATUS(write_config());
  agent::SpawnSpec spec{
      .command = {options_.agent_program, "--config", options_.config.run_dir + "/agent.json",
                  "--worker", std::to_string(worker), "--incarnation",
                  std::to_string(life.incarnation)},
      .environment = environment(),
      .log_file = options_.config.job.output_dir + "/" + kLogsDir + "/agent-" +
                  std::to_string(worker) + ".log",
      .keep_fds = {options_.lock_fd},
      .death_signal = SIGTERM};  // if we die: save and stop
  int ends[2] = {-1, -1};
  if (worker == 0) {
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return fail(ErrorKind::Environment, "cannot make a pipe", spec.command[0]);
    }
    spec.command.insert(spec.command.end(), {"--report-fd", std::to_string(ends[1])});
    spec.keep_fds.push_back(ends[1]);
  }
  const auto pid = agent::spawn(spec);
  if (worker == 0) {
    close(ends[1]);
    if (report_fd_ >= 0) close(report_fd_);
    report_fd_ = ends[0];
    report_bytes_.clear();
    fcntl(report_fd_, F_SETFL, O_NONBLOCK);
  }
  if (!pid) return std::unexpected(pid.error());
  life.pid = *pid;
  return {};
}

void Supervisor::start_due_agents() {
  for (int worker = 0; worker < static_cast<int>(agents_.size()); ++worker) {
    if (!agents_[worker].start_at || Clock::now() < *agents_[worker].start_at) continue;
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
  for (int worker = 0; worker < static_cast<int>(agents_.size()); ++worker) {
    AgentLife& life = agents_[worker];
    if (life.pid < 0) continue;
    const auto exit = agent::reap(life.pid);
    if (!exit) continue;
    life.pid = -1;
    read_reports();  // it wrote its last reports before it ended
    if (!outcome_) agent_died(worker, *exit);
  }
}

/// An agent ended although the job has not.
void Supervisor::agent_died(int worker, const agent::ChildExit& exit) {
  const std::string what = "the agent of worker " + std::to_string(worker) + " ended with " +
                           agent::describe_exit(exit.exit_code, exit.signal);
  const std::string log =
      options_.config.job.output_dir + "/" + kLogsDir + "/agent-" + std::to_string(worker) + ".log";
  const bool fatal =
      exit.signal == 0 && (exit.exit_code == kExitBadInput || exit.exit_code == kExitEnvironment);
  if (fatal) {
    progress_.print(stderr, quoted(agent::tail_of(log, 0, 1000)));
    return end({exit.exit_code, "AgentFailed", what + "; its log: " + log});
  }
  if (stopping_) {
    if (worker != 0) return;  // worker 0's agent notices and ends the job
    return end({kExitPreempted, "StoppedWithoutCheckpoint", what});
  }
  auto pause = 0ms;
  if (worker == 0) {
    const auto verdict = charge_restart(options_.config.budget, status_.saved_step().value_or(-1));
    options_.config.budget = verdict.budget;
    const json failure = {{"report", "failure"},
                          {"attempt", status_.attempt()},
                          {"worker", 0},
                          {"rank", -1},
                          {"step", status_.step()},
                          {"reason", "WorkerLost"},
                          {"message", what},
                          {"restart", verdict.allowed},
                          {"pauseMs", verdict.pause.count()},
                          {"restartsUsed", verdict.budget.used},
                          {"restartsTotal", verdict.budget.total},
                          {"restartLimit", verdict.budget.limit},
                          {"savedStep", verdict.budget.saved_step}};
    take_report(failure);
    if (!verdict.allowed) return end({kExitFailed, "BackoffLimitExceeded", what});
    pause = verdict.pause;
    options_.config.predecessor = true;
    options_.config.last_attempt = status_.attempt();
  } else {
    // Worker 0's agent counts what this costs the job. An agent that cannot stay up is another
    // matter.
    if (agents_[worker].incarnation > 10) {
      return end({kExitFailed, "AgentFailed", what + " for the 10th time; its log: " + log});
    }
    pause = 500ms;
    progress_.print(stderr, what + "; it is started again");
  }
  agents_[worker].start_at = Clock::now() + pause;
}

void Supervisor::end(Outcome outcome) {
  if (outcome_) return;
  take_report({{"report", "end"},
               {"exitCode", outcome.exit_code},
               {"reason", outcome.reason},
               {"message", outcome.message}});
  kill_agents();
}

void Supervisor::kill_agents() {
  kill_at_.reset();
  for (const auto& life : agents_) {
    if (life.pid > 0) agent::signal_group(life.pid, SIGKILL);
  }
}

/// Collects dead processes that were left to this one: ranks of an agent that died.
void Supervisor::bury_strays() {
  siginfo_t dead{};
  while (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid > 0) {
    const bool agent = std::ranges::any_of(
        agents_, [&](const AgentLife& life) { return life.pid == dead.si_pid; });
    if (agent) return;  // reap_agents() comes first
    waitpid(dead.si_pid, nullptr, WNOHANG);
    dead = {};
  }
}

/// Kills descendants that outlived their parent and so became children of this process.
void Supervisor::kill_strays() {
  for (int round = 0; round < 100; ++round) {
    std::ifstream children("/proc/self/task/" + std::to_string(getpid()) + "/children");
    pid_t pid = 0;
    while (children >> pid) kill(pid, SIGKILL);
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (pid < 0) return;  // no child is left
    const timespec moment{0, 20'000'000};
    nanosleep(&moment, nullptr);
  }
}

// ---- signals

void Supervisor::take_signals() {
  for (const int number : agent::read_signals(signal_fd_)) {
    if (number != SIGCHLD) take_stop();
  }
}

void Supervisor::take_stop() {
  if (killed_ || outcome_) return;
  if (stopping_) {
    killed_ = true;
    progress_.print(stderr, "killed at once; nothing more is saved");
    return end({kExitPreempted, "StoppedWithoutCheckpoint", "killed on the second request"});
  }
  stopping_ = true;
  status_.stopping(time_of_day());
  status_dirty_ = true;
  progress_.print(stderr, "stopping: all ranks save the same step (once more to kill at once)");
  for (const auto& life : agents_) {
    if (life.pid > 0) kill(life.pid, SIGTERM);
  }
}

// ---- reports

void Supervisor::read_reports() {
  if (report_fd_ < 0) return;
  char buffer[64 * 1024];
  ssize_t got;
  while ((got = read(report_fd_, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) report_bytes_.append(buffer, static_cast<size_t>(got));
  }
  if (got == 0) {
    close(report_fd_);
    report_fd_ = -1;
  }
  size_t start = 0;
  for (size_t end; (end = report_bytes_.find('\n', start)) != std::string::npos; start = end + 1) {
    const json report = json::parse(report_bytes_.substr(start, end - start), nullptr, false);
    if (report.is_object()) take_report(report);
  }
  report_bytes_.erase(0, start);
}

ProgressView Supervisor::view() const {
  ProgressView view{.label = stopping_ ? "saving" : status_.step() > 0 ? "" : "starting"};
  view.step = status_.step();
  view.total = status_.total_steps();
  view.loss = number_of(last_step_, "loss");
  view.lr = number_of(last_step_, "lr");
  view.grad_norm = number_of(last_step_, "grad_norm");
  view.tokens_per_second = number_of(last_step_, "tokens_per_second");
  view.seconds_left = status_.seconds_left();
  return view;
}

void Supervisor::take_report(const json& report) {
  const std::string kind = text_of(report, "report");
  status_.take(report, time_of_day());
  status_dirty_ = true;
  if (kind == "step") {
    last_step_ = report;
    progress_.show(view());
    return;
  }
  if (kind == "log") {
    ProgressView logged = view();
    logged.step = report.value("step", logged.step);
    logged.loss = number_of(report, "loss");
    logged.lr = number_of(report, "learning_rate");
    logged.grad_norm = number_of(report, "grad_norm");
    progress_.line(logged);
    return;
  }
  progress_.show(view());
  if (kind == "attempt") {
    say("attempt " + std::to_string(status_.attempt()) + ": " +
        std::to_string(report.value("worldSize", 0)) + " ranks");
  } else if (kind == "resumed") {
    say("resumed from step " + std::to_string(status_.step()) + " (" + text_of(report, "path") +
        ")");
  } else if (kind == "checkpoint") {
    say("saved step " + std::to_string(status_.saved_step().value_or(0)) + " (" +
        text_of(report, "path") + ")");
  } else if (kind == "eval") {
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.4f", number_of(report, "eval_loss").value_or(NAN));
    say("step " + std::to_string(report.value("step", int64_t{0})) + " eval_loss " + loss + " (" +
        std::to_string(report.value("eval_samples", int64_t{0})) + " rows)");
  } else if (kind == "note") {
    std::string text = text_of(report, "text");
    while (text.ends_with('\n')) text.pop_back();
    say(text);
  } else if (kind == "exported") {
    say("model written to " + text_of(report, "path"));
  } else if (kind == "warning") {
    progress_.print(stderr, "warning: rank " + std::to_string(report.value("rank", -1)) + ": " +
                                text_of(report, "message"));
  } else if (kind == "failure") {
    show_failure(report);
  } else if (kind == "end") {
    outcome_ = Outcome{report.value("exitCode", static_cast<int>(kExitFailed)),
                       text_of(report, "reason"), text_of(report, "message")};
    kill_at_ = Clock::now() + 15s;  // the agents should exit by themselves
  }
  keep_status(kind != "warning");
}

void Supervisor::show_failure(const json& report) {
  const int rank = report.value("rank", -1);
  std::string text = "attempt " + std::to_string(report.value("attempt", int64_t{0})) +
                     " failed after step " + std::to_string(report.value("step", int64_t{0})) +
                     ": " + text_of(report, "message");
  if (report.value("signal", 0) == SIGKILL) {
    text += "; if nobody killed it, the kernel did for want of memory";
  }
  if (rank >= 0) {
    text += "\n  log: " + options_.config.job.output_dir + "/" + kLogsDir + "/rank-" +
            std::to_string(rank) + ".log";
  }
  if (const auto words = text_of(report, "lastWords"); !words.empty()) text += "\n" + quoted(words);
  const int64_t saved = status_.saved_step().value_or(-1);
  if (report.value("restart", false)) {
    text +=
        "\nrestart " + std::to_string(report.value("restartsUsed", 0)) + " of " +
        std::to_string(report.value("restartLimit", 0)) + " in " +
        std::to_string(report.value("pauseMs", 0)) + " ms, " +
        (saved >= 0 ? "from the checkpoint of step " + std::to_string(saved) : "from the start");
  }
  options_.config.budget.used = report.value("restartsUsed", options_.config.budget.used);
  options_.config.budget.total = report.value("restartsTotal", options_.config.budget.total);
  options_.config.budget.saved_step = report.value("savedStep", options_.config.budget.saved_step);
  progress_.print(stderr, text);
}

void Supervisor::keep_status(bool now) {
  if (!status_dirty_ || (!now && Clock::now() - status_written_ < 1s)) return;
  PosixFiles files;
  const auto written = files.write_atomically(options_.config.job.output_dir + "/" + kStatusFile,
                                              status_to_text(status_.object()));
  status_written_ = Clock::now();
  status_dirty_ = false;
  if (!written && !status_failed_) {
    status_failed_ = true;
    progress_.print(stderr, "warning: " + written.error().to_string());
  }
}

int Supervisor::farewell() {
  const auto saved = status_.saved_step();
  const std::string from = saved ? "step " + std::to_string(*saved) : "the start";
  switch (outcome_->exit_code) {
    case kExitDone: {
      std::string text = "done";
      if (status_.step() > 0) text += ": step " + std::to_string(status_.step());
      if (const auto loss = number_of(last_step_, "loss")) {
        char number[32];
        std::snprintf(number, sizeof number, ", loss %.4f", *loss);
        text += number;
      }
      std::printf("%s\n", text.c_str());
      return 0;
    }
    case kExitPreempted:
      std::fprintf(stderr, "interrupted: %s\nto go on from %s, run it again: %s\n",
                   outcome_->message.c_str(), from.c_str(), options_.resume_command.c_str());
      return kExitInterrupted;
    default:
      break;
  }
  std::fprintf(stderr, "dsj run: failed: %s: %s\n", outcome_->reason.c_str(),
               outcome_->message.c_str());
  if (outcome_->exit_code == kExitFailed) {
    std::fprintf(stderr, "to go on from %s, run it again: %s\n", from.c_str(),
                 options_.resume_command.c_str());
  }
  const int code = outcome_->exit_code;
  return code == kExitBadInput || code == kExitEnvironment ? code : kExitFailed;
}

}  // namespace dsj::cli
