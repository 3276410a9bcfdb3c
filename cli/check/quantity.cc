#include "cli/check/quantity.h"

#include <array>
#include <utility>

#include "common/text.h"

namespace dsj::cli {

std::optional<int64_t> parse_quantity(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 11> kSuffixes = {{
      {"Ki", 1024.0},
      {"Mi", 1048576.0},
      {"Gi", 1073741824.0},
      {"Ti", 1099511627776.0},
      {"Pi", 1125899906842624.0},
      {"k", 1e3},
      {"M", 1e6},
      {"G", 1e9},
      {"T", 1e12},
      {"P", 1e15},
      {"m", 1e-3},
  }};
  double factor = 1;
  for (const auto& [suffix, value] : kSuffixes) {
    if (!text.ends_with(suffix)) continue;
    factor = value;
    text.remove_suffix(suffix.size());
    break;
  }
  const auto number = text::parse_double(text);
  if (!number || *number < 0 || *number * factor > 9e18) return std::nullopt;
  return static_cast<int64_t>(*number * factor);
}

}  // namespace dsj::cli
