// A list of ranks as runs: "0+4x3,20" is 0, 4, 8 and 20. Short, even for many ranks in a regular
// pattern. Ranks exchange it when a group is split; flight logs contain it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dsj {

std::string text_of_ranks(std::span<const int> ranks);
/// The inverse. nullopt if malformed, longer than `world`, or with a rank outside [0, world).
std::optional<std::vector<int>> parse_ranks(std::string_view text, int world);

}  // namespace dsj
