// How much memory and how many processors this process's ranks may use on this machine: what it has, and the limits that a
// container, a service or a batch system has put on this process, Linux control groups of both versions (cgroups(7)).
// Tested by: tests/common/host_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dsj {

/// Calls `visit` with the folder of each group that `controller` ("memory", "cpu") counts this process in, from its own
/// to the outermost. `version`: 1 or 2. A container often shows only the outermost, which then is its own. `root`
/// precedes /proc and /sys: for tests.
void each_group(const std::string& root, const std::string& controller,
                const std::function<void(const std::string& folder, int version)>& visit);

/// The smallest limit of this process's control groups, bytes. nullopt: none is set. `root` precedes /proc and /sys:
/// for tests.
std::optional<int64_t> container_memory(const std::string& root = "");
/// nullopt: the machine does not say.
std::optional<int64_t> machine_memory(const std::string& root = "");

struct HostMemory {
  std::optional<int64_t> bytes;  ///< unset: unknown
  std::string from;              ///< "this container's memory limit", "this machine's memory"
};
/// The smaller of the two.
HostMemory host_memory(std::optional<int64_t> container, std::optional<int64_t> machine);

/// Whole processors that the quotas of this process's control groups are worth, at least 1. nullopt: none is set.
std::optional<int> container_cores(const std::string& root = "");
/// Processors that the scheduler lets this thread run on.
int scheduled_cores();
/// The smaller of the two. A container of 2 processors on a machine of 64 shows all 64 to
/// std::thread::hardware_concurrency().
int usable_cores(const std::string& root = "");

/// Raises this process's soft limit of open files to `wanted` where it is below, as far as the hard limit allows.
/// Children inherit it. Returns how many files may be open now.
int allow_open_files(int wanted);

}  // namespace dsj
