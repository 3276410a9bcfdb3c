// How deep JSON text nests, before it is parsed: the parser itself does not recurse, but copying,
// printing and walking what it made does, and a hostile file is a million brackets.
#pragma once

#include <cstddef>
#include <string_view>

namespace dsj {

inline constexpr size_t kJsonDepthMax = 512;

/// Open brackets outside strings, at most; of text that is not JSON an upper bound.
size_t json_depth(std::string_view text);

}  // namespace dsj
