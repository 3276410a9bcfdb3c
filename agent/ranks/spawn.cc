#include "agent/ranks/spawn.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "common/check.h"

extern char** environ;

namespace dsj::agent {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const auto& text : strings) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// What the child needs between fork and exec, where only async-signal-safe calls are allowed.
struct ChildPlan {
  const std::vector<char*>& argv;
  const std::vector<char*>& envp;
  const std::vector<int>& keep_fds;
  int log_fd;
  int error_pipe;
  int death_signal;
  pid_t parent;
};

[[noreturn]] void become(const ChildPlan& plan) {
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGQUIT}) signal(number, SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, 0);
  if (plan.log_fd >= 0) {
    dup2(plan.log_fd, 1);
    dup2(plan.log_fd, 2);
  }
  // Libraries open sockets without CLOEXEC. A rank must not inherit them from its agent.
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  for (int fd : plan.keep_fds) fcntl(fd, F_SETFD, 0);
  prctl(PR_SET_PDEATHSIG, plan.death_signal);
  if (getppid() != plan.parent) _exit(127);  // the parent died before the line above
  // execvpe would pass a file that is not a program to the shell.
  if (std::strchr(plan.argv[0], '/')) {
    execve(plan.argv[0], plan.argv.data(), plan.envp.data());
  } else {
    execvpe(plan.argv[0], plan.argv.data(), plan.envp.data());
  }
  const int problem = errno;
  [[maybe_unused]] const auto ignored = write(plan.error_pipe, &problem, sizeof problem);
  _exit(127);
}

Error os_error(const std::string& what, const std::string& where, int number) {
  return {ErrorKind::Environment, what + ": " + std::strerror(number), where};
}

/// Whether waitid() reported an end, and not a stop.
bool has_ended(const siginfo_t& told) {
  return told.si_code == CLD_EXITED || told.si_code == CLD_KILLED || told.si_code == CLD_DUMPED;
}

}  // namespace

std::optional<std::string> find_program(const std::string& name, const std::string& folders) {
  const auto runs = [](const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
           access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return runs(name) ? std::optional(name) : std::nullopt;
  std::istringstream all(folders);
  for (std::string folder; std::getline(all, folder, ':');) {
    const std::string file = (folder.empty() ? "." : folder) + "/" + name;
    if (runs(file)) return file;
  }
  return std::nullopt;
}

Result<pid_t> spawn(const SpawnSpec& spec) {
  DSJ_CHECK(!spec.command.empty(), "nothing to start");
  const auto argv = pointers(spec.command);
  const auto envp = pointers(spec.environment);
  int log_fd = -1;
  if (!spec.log_file.empty()) {
    log_fd = open(spec.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log_fd < 0) return std::unexpected(os_error("cannot open the log", spec.log_file, errno));
  }
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) {
    const int problem = errno;
    if (log_fd >= 0) close(log_fd);
    return std::unexpected(os_error("cannot make a pipe", spec.command[0], problem));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    become({argv, envp, spec.keep_fds, log_fd, error_pipe[1], spec.death_signal, parent});
  }
  const int fork_problem = errno;
  close(error_pipe[1]);
  if (log_fd >= 0) close(log_fd);
  int problem = pid < 0 ? fork_problem : 0;
  if (pid > 0) {
    setpgid(pid, pid);  // both sides do it; either may be first
    ssize_t got;
    do got = read(error_pipe[0], &problem, sizeof problem);
    while (got < 0 && errno == EINTR);
    if (got > 0) waitpid(pid, nullptr, 0);
  }
  close(error_pipe[0]);
  if (problem != 0) return std::unexpected(os_error("cannot start it", spec.command[0], problem));
  return pid;
}

std::optional<ChildExit> reap(pid_t pid) {
  // WNOWAIT keeps the zombie, so that its process group id cannot be reused. While a child's stacks
  // are taken (agent/stacks), waitid reports it as stopped, whatever the options.
  siginfo_t seen{};
  if (waitid(P_PID, pid, &seen, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      (seen.si_pid != pid || !has_ended(seen))) {
    return std::nullopt;
  }
  kill(-pid, SIGKILL);
  int status = 0;
  const pid_t got = waitpid(pid, &status, WNOHANG);
  if (got != pid) return std::nullopt;
  if (WIFSTOPPED(status)) return std::nullopt;
  if (WIFSIGNALED(status)) return ChildExit{0, WTERMSIG(status)};
  return ChildExit{WEXITSTATUS(status), 0};
}

void bury_orphans(const std::function<bool(pid_t)>& ours) {
  siginfo_t dead{};
  while (waitid(P_ALL, 0, &dead, WEXITED | WNOHANG | WNOWAIT) == 0 && dead.si_pid > 0) {
    if (ours(dead.si_pid) || !has_ended(dead)) return;  // reap() collects it
    waitpid(dead.si_pid, nullptr, WNOHANG);
    dead = {};
  }
}

void signal_group(pid_t pid, int signal) {
  DSJ_CHECK(pid > 1, "signal to process group %d", pid);
  kill(-pid, signal);
}

std::vector<std::string> inherited_environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) result.emplace_back(*entry);
  return result;
}

Result<int> signal_fd(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int number : signals) sigaddset(&set, number);
  if (pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) {
    return std::unexpected(os_error("cannot block signals", "signalfd", errno));
  }
  const int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) return std::unexpected(os_error("cannot read signals", "signalfd", errno));
  return fd;
}

std::vector<int> read_signals(int fd) {
  std::vector<int> numbers;
  signalfd_siginfo info;
  while (read(fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    numbers.push_back(static_cast<int>(info.ssi_signo));
  }
  return numbers;
}

std::string tail_of(const std::string& path, int64_t from, size_t bytes_max) {
  const int64_t size = size_of(path);
  if (size < from) from = 0;  // it was truncated since (log_rotation.h)
  const int64_t start = std::max(from, size - static_cast<int64_t>(bytes_max));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text(static_cast<size_t>(std::max<int64_t>(0, size - start)), '\0');
  const ssize_t got = pread(fd, text.data(), text.size(), start);
  close(fd);
  text.resize(got > 0 ? static_cast<size_t>(got) : 0);
  if (start > from) {
    const size_t line = text.find('\n');
    if (line != std::string::npos) text.erase(0, line + 1);
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

int64_t size_of(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_size : 0;
}

}  // namespace dsj::agent
