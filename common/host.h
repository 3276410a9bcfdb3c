// The memory and the processors that this process's ranks may use: the machine's, limited by a
// container, a service or a batch system with Linux control groups of either version (cgroups(7)).
// Tested by: tests/common/host_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace dsj {

/// Calls `visit` with the folder of each group that limits this process with `controller`
/// ("memory", "cpu"), from its own group to the outermost. `version`: 1 or 2. A container often
/// sees only the outermost, which then is its own. `root` precedes /proc and /sys, for tests.
void each_group(const std::string& root, const std::string& controller,
                const std::function<void(const std::string& folder, int version)>& visit);

/// The smallest memory limit of this process's control groups, in bytes. nullopt if there is none.
/// `root` precedes /proc and /sys, for tests.
std::optional<int64_t> container_memory(const std::string& root = "");
/// nullopt if unknown.
std::optional<int64_t> machine_memory(const std::string& root = "");

struct HostMemory {
  std::optional<int64_t> bytes;  ///< nullopt if unknown
  std::string from;              ///< "this container's memory limit", "this machine's memory"
};
/// The smaller of the two, with its source.
HostMemory host_memory(std::optional<int64_t> container, std::optional<int64_t> machine);

/// Whole processors that this process's CPU quotas allow, at least 1. nullopt without quotas.
std::optional<int> container_cores(const std::string& root = "");
/// Processors on which the scheduler may run this thread.
int scheduled_cores();
/// The smaller of the two. In a container of 2 processors on a machine of 64,
/// std::thread::hardware_concurrency() is 64.
int usable_cores(const std::string& root = "");

/// Raises this process's soft limit of open files to `wanted` if it is lower, within the hard
/// limit. Children inherit it. Returns the resulting limit.
int allow_open_files(int wanted);

}  // namespace dsj
