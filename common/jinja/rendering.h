// What a rendering is given and what it gives. Used through template.h.
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
  int64_t now = 0;  ///< seconds since 1970: what strftime_now shows, in UTC
  int64_t steps_max = 50'000'000;
  int64_t bytes_max = 64 << 20;  ///< of the output, and of any text made on the way
};

struct Rendered {
  std::string text;
  /// First and end byte of each {% generation %} block, in order.
  std::vector<std::pair<size_t, size_t>> generated;
};

using Context = std::vector<std::pair<std::string, Value>>;

}  // namespace dsj::jinja
