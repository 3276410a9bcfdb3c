// The limits that a container, a service or a batch system has put on this process: Linux control groups of both
// versions (cgroups(7)). Pure but for reading files.
// Tested by: tests/common/host_test.cc
#pragma once

#include <functional>
#include <string>

namespace dsj {

/// Calls `visit` with the folder of each group that `controller` ("memory", "cpu") counts this process in, from its own
/// to the outermost. `version`: 1 or 2. A container often shows only the outermost, which then is its own. `root`
/// precedes /proc and /sys: for tests.
void each_group(const std::string& root, const std::string& controller,
                const std::function<void(const std::string& folder, int version)>& visit);

}  // namespace dsj
