#include "common/host.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <thread>

namespace dsj {
namespace {

namespace fs = std::filesystem;

/// Whether a list of controllers contains one: "cpu,cpuacct" contains "cpu".
bool names(const std::string& list, const std::string& controller) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == controller) return true;
  }
  return false;
}

constexpr int64_t kNoLimit = int64_t{1} << 60;  // version 1 writes the largest multiple of a page
constexpr int kProcessorsMost = 1 << 16;

}  // namespace

void each_group(const std::string& root, const std::string& controller,
                const std::function<void(const std::string& folder, int version)>& visit) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const int version = list.empty() ? 2 : 1;
    if (version == 1 && !names(list, controller)) continue;
    // Version 1 has a mount per controller; "cpu" may be a link to "cpu,cpuacct".
    const std::string mount = root + "/sys/fs/cgroup" + (version == 2 ? "" : "/" + controller);
    fs::path group = line.substr(second + 1);
    for (;; group = group.parent_path()) {
      visit(mount + (group.has_relative_path() ? group.string() : ""), version);
      if (!group.has_relative_path()) break;
    }
  }
}

std::optional<int64_t> container_memory(const std::string& root) {
  std::optional<int64_t> least;
  each_group(root, "memory", [&](const std::string& folder, int version) {
    std::ifstream file(folder + (version == 2 ? "/memory.max" : "/memory.limit_in_bytes"));
    int64_t bytes = 0;
    if (!(file >> bytes) || bytes >= kNoLimit) return;  // "max" is not a number
    least = std::min(least.value_or(bytes), bytes);
  });
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

std::optional<int> container_cores(const std::string& root) {
  std::optional<int> least;
  each_group(root, "cpu", [&](const std::string& folder, int version) {
    // Microseconds. The quota stays 0 for "max"; version 1 writes -1 if there is none.
    double quota = 0, period = 0;
    if (version == 2) {
      std::ifstream(folder + "/cpu.max") >> quota >> period;
    } else {
      std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
      std::ifstream(folder + "/cpu.cfs_period_us") >> period;
    }
    if (quota <= 0 || period <= 0) return;
    const int cores = static_cast<int>(std::clamp(quota / period, 1.0, double{kProcessorsMost}));
    least = std::min(least.value_or(cores), cores);
  });
  return least;
}

int scheduled_cores() {
  // The kernel refuses a set smaller than its own.
  for (int most = CPU_SETSIZE; most <= kProcessorsMost; most *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(most),
                                                               [](cpu_set_t* it) { CPU_FREE(it); });
    if (set && ::sched_getaffinity(0, CPU_ALLOC_SIZE(most), set.get()) == 0) {
      return std::max(1, CPU_COUNT_S(CPU_ALLOC_SIZE(most), set.get()));
    }
  }
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

int usable_cores(const std::string& root) {
  const int scheduled = scheduled_cores();
  return std::min(scheduled, container_cores(root).value_or(scheduled));
}

int allow_open_files(int wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t more = std::min(limit.rlim_max, static_cast<rlim_t>(wanted));
  if (limit.rlim_cur < more) {
    const rlimit raised{more, limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

}  // namespace dsj
