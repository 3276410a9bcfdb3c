// Random digits that nobody can guess: keys, names of runs.
// Tested by: tests/common/random_hex_test.cc
#pragma once

#include <cstddef>
#include <string>

#include "common/result.h"

namespace dsj {

/// 2 * `bytes` digits of the kernel's randomness. Environment: it has none.
Result<std::string> random_hex(size_t bytes);

}  // namespace dsj
