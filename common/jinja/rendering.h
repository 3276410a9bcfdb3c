// The inputs and the result of a rendering. Used through template.h.
// Tested by: tests/common/jinja/template_test.cc
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/jinja/value.h"

namespace dsj::jinja {

struct RenderOptions {
  int64_t now = 0;  ///< seconds since 1970, for strftime_now, in UTC
  int64_t steps_max = 50'000'000;
  int64_t bytes_max = 64 << 20;  ///< of the output, and of any intermediate text
};

struct Rendered {
  std::string text;
  /// Begin and end of each {% generation %} block, in bytes, in order.
  std::vector<std::pair<size_t, size_t>> generated;
};

using Context = std::vector<std::pair<std::string, Value>>;

}  // namespace dsj::jinja
