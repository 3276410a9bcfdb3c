#include "common/host_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace dsj {

namespace fs = std::filesystem;

std::optional<int64_t> container_memory(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  std::optional<int64_t> least;
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::/")) continue;  // version 1 counts differently
    fs::path group = line.substr(3);
    for (;; group = group.parent_path()) {
      std::ifstream file(root + "/sys/fs/cgroup" + (group == "/" ? "" : group.string()) +
                         "/memory.max");
      int64_t bytes = 0;  // stays 0 for "max"
      if (file >> bytes) least = std::min(least.value_or(bytes), bytes);
      if (!group.has_relative_path()) break;
    }
  }
  return least;
}

std::optional<int64_t> machine_memory(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  int64_t kibibytes = 0;
  for (std::string word; file >> word;)
    if (word == "MemTotal:" && file >> kibibytes) return kibibytes * 1024;
  return std::nullopt;
}

HostMemory host_memory(std::optional<int64_t> container, std::optional<int64_t> machine) {
  if (container && (!machine || *container < *machine))
    return {container, "this container's memory limit"};
  return {machine, "this machine's memory"};
}

}  // namespace dsj
