// Lists of ranks, as a sentence names them.
// Tested by: tests/agent/gang/stall_test.cc
#pragma once

#include <span>
#include <string>

namespace dsj::agent {

/// "rank 2", "ranks 0-2 and 5"; a list of many stretches ends with "and more".
std::string ranks_text(std::span<const int> ranks);
/// "0-2, 5".
std::string ranks_list(std::span<const int> ranks);

}  // namespace dsj::agent
