#include "cli/programs.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "job/contract.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

/// Ignores SIGINT and SIGQUIT during its lifetime.
class TerminalSignalsIgnored {
 public:
  TerminalSignalsIgnored() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    sigaction(SIGINT, &ignore, &interrupt_);
    sigaction(SIGQUIT, &ignore, &quit_);
  }
  ~TerminalSignalsIgnored() { restore(); }
  TerminalSignalsIgnored(const TerminalSignalsIgnored&) = delete;
  TerminalSignalsIgnored& operator=(const TerminalSignalsIgnored&) = delete;

  void restore() const {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGQUIT, &quit_, nullptr);
  }

 private:
  struct sigaction interrupt_ {
  }, quit_{};
};

Error not_started(const std::string& program) {
  return {ErrorKind::Environment, std::string("cannot start it: ") + std::strerror(errno), program,
          ""};
}

}  // namespace

Result<std::string> program_beside(const std::string& name) {
  std::error_code problem;
  const fs::path own = fs::read_symlink("/proc/self/exe", problem);
  const fs::path path = own.parent_path() / name;
  if (problem || access(path.c_str(), X_OK) != 0) {
    return fail(ErrorKind::Environment, "the program is missing", path.string(),
                "dsj, dsj-agent and dsj-train must be in one directory; a build with "
                "-DDSJ_ENGINE=OFF has no dsj-train");
  }
  return path.string();
}

Result<std::string> engine_program() {
  const char* other = std::getenv("DSJ_TRAIN_PROGRAM");
  if (!other || !*other) return program_beside("dsj-train");
  if (access(other, X_OK) != 0)
    return fail(ErrorKind::Environment, "DSJ_TRAIN_PROGRAM is not a program", other);
  return fs::absolute(other).string();
}

Result<int> run_to_the_end(std::vector<std::string> command, const std::string& output) {
  if (access(command[0].c_str(), X_OK) != 0) return std::unexpected(not_started(command[0]));
  int out = -1;
  if (!output.empty()) {
    out = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (out < 0) {
      return fail(ErrorKind::Environment, std::string("cannot write it: ") + std::strerror(errno),
                  output);
    }
  }
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t self = getpid();
  const TerminalSignalsIgnored ignored;
  const pid_t child = fork();
  if (child == 0) {
    ignored.restore();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (out >= 0) dup2(out, STDOUT_FILENO);
    if (getppid() == self) execv(pointers[0], pointers.data());
    _exit(contract::kExitNotStarted);
  }
  if (out >= 0) close(out);
  int status = 0;
  pid_t ended = child;
  if (child > 0)
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
  if (ended < 0) return std::unexpected(not_started(command[0]));
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace dsj::cli
