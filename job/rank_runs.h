// A list of ranks as runs, "0+4x3,20" for 0, 4, 8 and 20: a rule, short however many ranks follow it.
// It travels where a group is split, and stands in flight logs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsj {

std::string text_of_ranks(std::span<const int> ranks);
/// And back. Unset: no such text, or it has more than `world` ranks or one outside [0, world).
std::optional<std::vector<int>> parse_ranks(std::string_view text, int world);

}  // namespace dsj
