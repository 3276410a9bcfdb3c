#include "job/rank_runs.h"

#include <charconv>
#include <cstdint>

namespace dsj {
namespace {

bool read_number(std::string_view& text, int& number) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{}) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool skip(std::string_view& text, char expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(1);
  return true;
}

/// Removes the first run from `text` and appends its ranks.
bool read_run(std::string_view& text, int world, std::vector<int>& ranks) {
  int first = 0, step = 0, count = 1;
  if (!read_number(text, first)) return false;
  if (skip(text, '+')) {
    if (!read_number(text, step) || !skip(text, 'x') || !read_number(text, count)) return false;
  }
  if (count < 1 || count > world - static_cast<int>(ranks.size())) return false;
  for (int i = 0; i < count; ++i) {
    const int64_t rank = first + int64_t{i} * step;
    if (rank < 0 || rank >= world) return false;
    ranks.push_back(static_cast<int>(rank));
  }
  return true;
}

}  // namespace

std::string text_of_ranks(std::span<const int> ranks) {
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    const int step = first + 1 < ranks.size() ? ranks[first + 1] - ranks[first] : 0;
    while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == step) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ranks[first]);
    if (last > first) text += "+" + std::to_string(step) + "x" + std::to_string(last - first + 1);
    first = last + 1;
  }
  return text;
}

std::optional<std::vector<int>> parse_ranks(std::string_view text, int world) {
  std::vector<int> ranks;
  while (!text.empty()) {
    if (!ranks.empty() && !skip(text, ',')) return std::nullopt;
    if (!read_run(text, world, ranks)) return std::nullopt;
  }
  return ranks;
}

}  // namespace dsj
