// How deep JSON text nests, found before it is parsed. The parser does not recurse, but copying,
// printing and walking its result does, and a hostile file may hold a million brackets.
#pragma once

#include <cstddef>
#include <string_view>

namespace dsj {

inline constexpr size_t kJsonDepthMax = 512;

/// The most brackets open at once outside strings. For text that is not JSON an upper bound.
size_t json_depth(std::string_view text);

}  // namespace dsj
