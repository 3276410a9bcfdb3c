#include "agent/health/node_probe.h"

#include <sys/statvfs.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace dsj::agent {
namespace {

namespace fs = std::filesystem;

/// Limits the number of files that are measured in a large checkpoint on a slow volume.
constexpr int kFilesMeasured = 10'000;

std::optional<int64_t> memory_available(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kib = 0;
    if (words >> name >> kib && name == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

std::optional<struct statvfs> file_system(const std::string& directory) {
  struct statvfs found {};
  if (directory.empty() || ::statvfs(directory.c_str(), &found) != 0) return std::nullopt;
  return found;
}

std::optional<int64_t> free_bytes(const std::string& directory) {
  const auto found = file_system(directory);
  if (!found) return std::nullopt;
  return static_cast<int64_t>(found->f_bavail * found->f_frsize);
}

/// Size of the most recently changed directory below `path`. nullopt if there is none or it has too
/// many files.
std::optional<int64_t> newest_bytes(const std::string& path) {
  std::error_code problem;
  fs::path newest;
  fs::file_time_type last{};
  for (fs::directory_iterator at(path, problem), end; !problem && at != end;
       at.increment(problem)) {
    std::error_code ignored;
    if (!at->is_directory(ignored)) continue;
    const auto changed = at->last_write_time(ignored);
    if (newest.empty() || changed > last) {
      newest = at->path();
      last = changed;
    }
  }
  if (newest.empty()) return std::nullopt;
  int64_t bytes = 0;
  int files = 0;
  for (fs::recursive_directory_iterator at(newest, problem), end; !problem && at != end;
       at.increment(problem)) {
    std::error_code ignored;
    if (!at->is_regular_file(ignored)) continue;
    if (++files > kFilesMeasured) return std::nullopt;
    if (const auto size = at->file_size(ignored); !ignored) bytes += static_cast<int64_t>(size);
  }
  if (problem) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<double> clock_ahead(const ClockHints& hints, int64_t now) {
  if (hints.server_time) return static_cast<double>(now - *hints.server_time);
  if (hints.not_before && now < *hints.not_before) {
    return static_cast<double>(now - *hints.not_before);
  }
  return std::nullopt;
}

std::optional<int64_t> time_from_http_date(const std::string& text) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return static_cast<int64_t>(timegm(&parts));
}

NodeFacts PosixNodeProbe::look() {
  NodeFacts facts;
  facts.memory_available = memory_available(places_.root);
  facts.scratch_free = free_bytes(places_.scratch);
  facts.output_free = free_bytes(places_.output);
  if (!places_.checkpoints.empty()) facts.newest_checkpoint = newest_bytes(places_.checkpoints);
  if (const auto shm = file_system(places_.root + "/dev/shm")) {
    facts.shm_bytes = static_cast<int64_t>(shm->f_blocks * shm->f_frsize);
  }
  if (hints_) facts.clock_ahead = clock_ahead(hints_(), static_cast<int64_t>(std::time(nullptr)));
  facts.driver = nvml_.read();
  return facts;
}

}  // namespace dsj::agent
