// Unpredictable random digits, for keys and names of runs.
// Tested by: tests/common/random_hex_test.cc
#pragma once

#include <cstddef>
#include <string>

#include "common/result.h"

namespace dsj {

/// 2 * `bytes` digits from the kernel. Errors: Environment if it provides none.
Result<std::string> random_hex(size_t bytes);

}  // namespace dsj
