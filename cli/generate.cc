// dsj generate: `dsj-train generate` with the same arguments. The engine is a program of its own,
// so that dsj needs no libtorch. Its output is its own, and so is its exit code, but for the loader's:
// without libtorch the program never begins.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/verbs.h"
#include "job/contract.h"
#include "job/missing_library.h"

namespace dsj::cli {
namespace {

/// DSJ_TRAIN_PROGRAM, or dsj-train beside this program.
Result<std::string> engine_program() {
  if (const char* other = std::getenv("DSJ_TRAIN_PROGRAM"); other && *other)
    return std::filesystem::absolute(other).string();
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed)
    return fail(ErrorKind::Environment, "cannot tell where this program is: " + failed.message(),
                "/proc/self/exe");
  return (self.parent_path() / "dsj-train").string();
}

/// Runs it to its end, which is also this process's: a signal that ends this one ends it, too. Returns
/// waitpid's status. Error: it is no program.
Result<int> run_to_the_end(std::vector<std::string> words) {
  if (access(words[0].c_str(), X_OK) != 0)
    return fail(ErrorKind::Environment,
                std::string("cannot start the engine: ") + std::strerror(errno), words[0],
                "dsj-train belongs beside dsj; a build with -DDSJ_ENGINE=OFF has none");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == self) execv(pointers[0], pointers.data());
    _exit(contract::kExitNotStarted);
  }
  int status = 0;
  pid_t ended = child;
  if (child > 0)
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
    }
  if (ended < 0)
    return fail(ErrorKind::Environment,
                std::string("cannot start the engine: ") + std::strerror(errno), words[0]);
  return status;
}

}  // namespace

int run_generate(Arguments args) {
  const auto engine = engine_program();
  if (!engine) return report("generate", engine.error());
  std::vector<std::string> words = {*engine, "generate"};
  words.insert(words.end(), args.begin(), args.end());
  const auto status = run_to_the_end(std::move(words));
  if (!status) return report("generate", status.error());
  if (WIFSIGNALED(*status)) return 128 + WTERMSIG(*status);
  if (WEXITSTATUS(*status) != contract::kExitNotStarted) return WEXITSTATUS(*status);
  return report("generate", {ErrorKind::Environment, kMissingLibrary, *engine, ""});
}

}  // namespace dsj::cli
