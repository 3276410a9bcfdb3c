#include "kube/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <map>

namespace dsj::kube {
namespace {

using Kind = ProgramFailure::Kind;
using SteadyClock = std::chrono::steady_clock;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void set(int fd) { fd_ = fd; }
  void close() {
    ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

std::vector<std::string> whole_environment(const Program& program) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (const size_t equals = text.find('='); equals != std::string::npos) {
      all[text.substr(0, equals)] = text.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : program.environment) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words) out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

ProgramFailure of_errno(int error) {
  return {error == ENOENT ? Kind::NotFound : Kind::NotStarted, std::strerror(error)};
}

/// Starts the program with `output` as its stdout. Returns 0, or an errno.
int start(const Program& program, int output, pid_t& pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (!program.stdin_of_ours) {
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  // This process may block signals or ignore SIGPIPE; the program starts with the defaults.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> command = program.command, environment = whole_environment(program);
  const int error = posix_spawnp(&pid, command[0].c_str(), &files, &attributes,
                                 pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

/// Appends what can be read now. False at the end.
bool drain(int fd, std::string& to) {
  std::array<char, 16 << 10> bytes;
  while (to.size() <= kProgramOutputMax) {
    const ssize_t got = ::read(fd, bytes.data(), bytes.size());
    if (got > 0) {
      to.append(bytes.data(), static_cast<size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

class SystemPrograms final : public Programs {
 public:
  std::expected<ProgramEnd, ProgramFailure> run(const Program& program,
                                                std::chrono::milliseconds timeout,
                                                const Cancel& cancel) override {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return std::unexpected(of_errno(errno));
    Descriptor output(ends[0]), theirs(ends[1]);
    ::fcntl(output.get(), F_SETFL, O_NONBLOCK);
    const Descriptor woken(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (woken.get() < 0) return std::unexpected(of_errno(errno));
    pid_t pid = 0;
    if (const int error = start(program, theirs.get(), pid); error != 0) {
      return std::unexpected(of_errno(error));
    }
    theirs.close();
    const auto wake = cancel.on_cancel([fd = woken.get()] { (void)::eventfd_write(fd, 1); });
    const Descriptor ended(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    ProgramEnd end;
    const auto failure = wait(output.get(), woken.get(), ended.get(), SteadyClock::now() + timeout,
                              cancel, end.output);
    if (failure) ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (failure) return std::unexpected(*failure);
    end.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return end;
  }

 private:
  /// Reads until the program has ended. A child that it left behind may keep its stdout open; do not wait for that.
  static std::optional<ProgramFailure> wait(int output, int woken, int ended,
                                            SteadyClock::time_point deadline, const Cancel& cancel,
                                            std::string& text) {
    bool open = true;
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - SteadyClock::now());
      if (cancel.cancelled()) return ProgramFailure{Kind::Cancelled, ""};
      if (left.count() <= 0) return ProgramFailure{Kind::Timeout, ""};
      std::array<pollfd, 3> watched = {
          {{open ? output : -1, POLLIN, 0}, {woken, POLLIN, 0}, {ended, POLLIN, 0}}};
      if (::poll(watched.data(), watched.size(), static_cast<int>(left.count()) + 1) < 0) continue;
      const bool over = (watched[2].revents & POLLIN) != 0;
      if (open) open = drain(output, text);
      if (text.size() > kProgramOutputMax) return ProgramFailure{Kind::TooLong, ""};
      if (over) return std::nullopt;
      // Kernels before 5.3 have no pidfd: then the end of its stdout counts.
      if (!open && ended < 0) return std::nullopt;
    }
  }
};

}  // namespace

Programs& system_programs() {
  static SystemPrograms programs;
  return programs;
}

}  // namespace dsj::kube
