#include "cli/run/run_agents.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <utility>

#include "common/files/files.h"
#include "common/startup_trace.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

constexpr size_t kLastWordsBytesMax = 1000;

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> all = agent::inherited_environment();
  for (const auto& [name, value] : more) {
    std::erase_if(all, [&](const std::string& entry) { return entry.starts_with(name + "="); });
    all.push_back(name + "=" + value);
  }
  return all;
}

}  // namespace

RunClock::Time SystemRunClock::now() const {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

std::string SystemRunClock::time_of_day() const {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string agent_log(const std::string& logs_dir, int worker) {
  return path_join(logs_dir, "agent-" + std::to_string(worker) + ".log");
}

Result<LocalAgents> LocalAgents::open(LocalAgentsOptions options) {
  DSJ_TRY(const int signals, agent::signal_fd({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD}));
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // orphans of an agent become our children and are killed
  return LocalAgents(std::move(options), signals);
}

LocalAgents::LocalAgents(LocalAgentsOptions options, int signal_fd)
    : options_(std::move(options)), pids_(options_.workers, -1), signal_fd_(signal_fd) {}

LocalAgents::LocalAgents(LocalAgents&& other) noexcept
    : options_(std::move(other.options_)),
      pids_(std::move(other.pids_)),
      signal_fd_(std::exchange(other.signal_fd_, -1)),
      report_fd_(std::exchange(other.report_fd_, -1)) {}

LocalAgents::~LocalAgents() {
  for (const int fd : {signal_fd_, report_fd_}) {
    if (fd >= 0) close(fd);
  }
}

Status LocalAgents::start(int worker, int64_t incarnation) {
  auto environment = options_.environment;
  if (std::string trace = startup::recorder().for_child(); !trace.empty())
    environment.emplace_back(contract::kEnvStartupTrace, std::move(trace));
  agent::SpawnSpec spec{
      .command = {options_.program, "--config", options_.config_file, "--worker",
                  std::to_string(worker), "--incarnation", std::to_string(incarnation)},
      .environment = environment_with(environment),
      .log_file = agent_log(options_.logs_dir, worker),
      .keep_fds = {options_.lock_fd},
      .death_signal = SIGTERM};  // if this process dies: save and stop
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
    fcntl(report_fd_, F_SETFL, O_NONBLOCK);
  }
  if (!pid) return std::unexpected(pid.error());
  pids_[worker] = *pid;
  return {};
}

std::optional<agent::ChildExit> LocalAgents::take_exit(int worker) {
  if (!runs(worker)) return std::nullopt;
  const auto exit = agent::reap(pids_[worker]);
  if (exit) pids_[worker] = -1;
  return exit;
}

void LocalAgents::ask_to_stop(int worker) {
  if (runs(worker)) ::kill(pids_[worker], SIGTERM);
}

void LocalAgents::kill(int worker) {
  if (runs(worker)) agent::signal_group(pids_[worker], SIGKILL);
}

std::string LocalAgents::read_reports() {
  std::string bytes;
  if (report_fd_ < 0) return bytes;
  char buffer[64 * 1024];
  ssize_t got;
  while ((got = read(report_fd_, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
  }
  if (got == 0) {
    close(report_fd_);
    report_fd_ = -1;
  }
  return bytes;
}

std::string LocalAgents::last_words(int worker) const {
  return agent::tail_of(agent_log(options_.logs_dir, worker), 0, kLastWordsBytesMax);
}

void LocalAgents::take_signals() {
  for (const int number : agent::read_signals(signal_fd_)) {
    stacks_requested_ |= number == SIGQUIT;
    stop_requests_ += number != SIGQUIT && number != SIGCHLD;
  }
}

int LocalAgents::take_stop_requests() {
  take_signals();
  return std::exchange(stop_requests_, 0);
}

bool LocalAgents::take_stacks_request() {
  take_signals();
  return std::exchange(stacks_requested_, false);
}

void LocalAgents::ask_for_stacks() {
  if (runs(0)) ::kill(pids_[0], SIGQUIT);
}

void LocalAgents::wait() {
  pollfd entries[] = {{signal_fd_, POLLIN, 0}, {report_fd_, POLLIN, 0}};
  poll(entries, 2, 200);
}

void LocalAgents::bury_strays() {
  siginfo_t dead{};
  while (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid > 0) {
    if (std::ranges::count(pids_, dead.si_pid) > 0) return;  // take_exit() comes first
    waitpid(dead.si_pid, nullptr, WNOHANG);
    dead = {};
  }
}

void LocalAgents::kill_strays() {
  for (int round = 0; round < 100; ++round) {
    std::ifstream children("/proc/self/task/" + std::to_string(getpid()) + "/children");
    pid_t pid = 0;
    while (children >> pid) ::kill(pid, SIGKILL);
    while ((pid = waitpid(-1, nullptr, WNOHANG)) > 0) {
    }
    if (pid < 0) return;  // no child is left
    const timespec moment{0, 20'000'000};
    nanosleep(&moment, nullptr);
  }
}

}  // namespace dsj::cli
