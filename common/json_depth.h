// The nesting depth of JSON text, measured before it is parsed. The parser does not recurse, but
// copying, printing and walking its result does, and a hostile file may have a million brackets.
#pragma once

#include <cstddef>
#include <string_view>

namespace dsj {

inline constexpr size_t kJsonDepthMax = 512;

/// The maximum number of brackets open at once outside strings. An upper bound if it is not JSON.
size_t json_depth(std::string_view text);

}  // namespace dsj
