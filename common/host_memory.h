// How much memory this process's ranks may use on this machine.
// Tested by: tests/cli/limits_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj {

/// The smallest memory.max (cgroup v2) of this process's group and its parents. nullopt: none is
/// set. `root` precedes /proc and /sys: for tests.
std::optional<int64_t> container_memory(const std::string& root = "");
/// nullopt: the machine does not say.
std::optional<int64_t> machine_memory(const std::string& root = "");

struct HostMemory {
  std::optional<int64_t> bytes;  ///< unset: unknown
  std::string from;              ///< "this container's memory limit", "this machine's memory"
};
/// The smaller of the two.
HostMemory host_memory(std::optional<int64_t> container, std::optional<int64_t> machine);

}  // namespace dsj
