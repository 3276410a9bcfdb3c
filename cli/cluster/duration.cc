#include "cli/cluster/duration.h"

#include <array>
#include <cctype>
#include <cmath>
#include <string_view>

#include "common/text.h"

namespace dsj::cli {
namespace {

using std::chrono::milliseconds;

struct Unit {
  std::string_view name;
  double milliseconds;
};
constexpr std::array<Unit, 8> kUnits = {{{"ns", 1e-6},
                                         {"us", 1e-3},
                                         {"\u00b5s", 1e-3},
                                         {"\u03bcs", 1e-3},
                                         {"ms", 1},
                                         {"s", 1e3},
                                         {"m", 60e3},
                                         {"h", 3600e3}}};
constexpr double kMost = 9.223372036854e12;  // milliseconds: Go's longest, 2^63 - 1 ns

/// Removes the leading number or unit from `rest` and returns it.
template <typename Belongs>
std::string_view take_while(std::string_view& rest, Belongs belongs) {
  size_t end = 0;
  while (end < rest.size() && belongs(rest[end])) ++end;
  const std::string_view taken = rest.substr(0, end);
  rest.remove_prefix(end);
  return taken;
}

bool of_number(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.';
}

}  // namespace

std::optional<milliseconds> parse_duration(const std::string& text) {
  std::string_view rest = text;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty()) return std::nullopt;
  double total = 0;
  for (bool first = true; !rest.empty(); first = false) {
    const auto number = text::parse_double(take_while(rest, of_number));
    const std::string_view name = take_while(rest, [](char c) { return !of_number(c); });
    if (!number) return std::nullopt;
    if (name.empty() && first) {
      total = *number * 1e3;
      break;
    }
    const Unit* unit = nullptr;
    for (const Unit& known : kUnits)
      if (known.name == name) unit = &known;
    if (unit == nullptr) return std::nullopt;
    total += *number * unit->milliseconds;
  }
  if (!(total <= kMost)) return std::nullopt;
  return milliseconds(std::llround(negative ? -total : total));
}

ArgumentParser::Take take_duration(std::optional<milliseconds>& to, bool positive) {
  return [&to, positive](const std::string& word) -> std::optional<std::string> {
    to = parse_duration(word);
    if (to && (!positive || to->count() > 0)) return std::nullopt;
    return "\"" + word + "\": expected a duration like 90s, 5m or 1h30m" +
           (to ? ", longer than 0" : "");
  };
}

ArgumentParser::Take take_timeout(std::optional<milliseconds>& to) {
  return [&to, take = take_duration(to)](const std::string& word) {
    auto wrong = take(word);
    if (to && to->count() < 0) to = std::chrono::weeks(1);
    return wrong;
  };
}

}  // namespace dsj::cli
