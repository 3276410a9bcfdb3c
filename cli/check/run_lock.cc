#include "cli/check/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <utility>

#include "common/json.h"
#include "job/contract.h"

namespace dsj::cli {
namespace {

namespace fs = std::filesystem;

std::string lock_path(const std::string& output_dir, int node = 0) {
  return run_directory(output_dir) + "/lock" + (node == 0 ? "" : "-" + std::to_string(node));
}

Result<int> open_lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return fail(ErrorKind::Environment, std::string("cannot open it: ") + std::strerror(errno),
                path);
  }
  // A caller of was_killed() holds the lock for a moment.
  constexpr timespec kMoment{.tv_sec = 0, .tv_nsec = 10'000'000};
  bool taken = true;
  for (int look = 0; look < 20 && taken; ++look) {
    if (look > 0) nanosleep(&kMoment, nullptr);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    taken = errno == EWOULDBLOCK;
  }
  char holder[32] = "";
  const ssize_t got = pread(fd, holder, sizeof holder - 1, 0);
  close(fd);
  if (!taken) {
    return fail(ErrorKind::Environment, "cannot lock it", path);
  }
  std::string pid(holder, got > 0 ? static_cast<size_t>(got) : 0);
  while (!pid.empty() && pid.back() == '\n') pid.pop_back();
  const bool alive = !pid.empty() && fs::exists("/proc/" + pid);
  return bad_input("another dsj run (pid " + pid + ") uses this output directory" +
                       (alive ? "" : "; it has ended, but its agents are still saving"),
                   fs::path(path).parent_path().parent_path().string(),
                   alive ? "stop it first, or name another --output" : "try again in a moment");
}

}  // namespace

std::string run_directory(const std::string& output_dir) {
  return output_dir + "/.dsj";
}

Result<OutputLock> OutputLock::take(const std::string& output_dir, int node) {
  std::error_code problem;
  for (const auto& directory : {output_dir, output_dir + "/" + contract::kCheckpointsDir,
                                output_dir + "/" + contract::kLogsDir, run_directory(output_dir)}) {
    fs::create_directories(directory, problem);
    std::error_code unknown;
    if (problem && fs::is_symlink(directory, unknown) && !fs::exists(directory, unknown))
      return bad_input("is a link to " + fs::read_symlink(directory, unknown).string() +
                           ", which does not exist",
                       directory, "make that directory, or name another one");
    if (problem) {
      return fail(ErrorKind::Environment, "cannot make the directory: " + problem.message(),
                  directory);
    }
  }
  chmod(run_directory(output_dir).c_str(), 0700);
  DSJ_TRY(const int fd, open_lock(lock_path(output_dir, node)));
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const int number = errno;
    close(fd);
    return fail(ErrorKind::Environment,
                std::string("cannot write the lock: ") + std::strerror(number),
                lock_path(output_dir, node));
  }
  return OutputLock(fd);
}

OutputLock::OutputLock(OutputLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

OutputLock::~OutputLock() {
  if (fd_ >= 0) close(fd_);
}

bool was_killed(const std::string& output_dir, const nlohmann::json& status) {
  constexpr std::array<std::string_view, 4> kGoesOn = {"Pending", "Running", "Restarting",
                                                       "Stopping"};
  if (!std::ranges::count(kGoesOn, json_text(status, "phase"))) return false;
  const int fd = open(lock_path(output_dir).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool free = flock(fd, LOCK_SH | LOCK_NB) == 0;
  close(fd);
  return free;
}

}  // namespace dsj::cli
