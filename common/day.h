// A day as YYYY-MM-DD. Tested by: tests/common/day_test.cc
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/text.h"

namespace dsj {

/// Seconds from 1970 to the start of the day, in UTC. nullopt if it is not such a day.
inline std::optional<int64_t> seconds_of_day(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  for (const size_t at : {0, 1, 2, 3, 5, 6, 8, 9}) {
    if (text[at] < '0' || text[at] > '9') return std::nullopt;
  }
  const auto number = [&](size_t begin, size_t count) {
    return static_cast<int>(*text::parse_int(text.substr(begin, count)));
  };
  const std::chrono::year_month_day day{std::chrono::year(number(0, 4)),
                                        std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                        std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  if (!day.ok()) return std::nullopt;
  return std::chrono::seconds(std::chrono::sys_days(day).time_since_epoch()).count();
}

}  // namespace dsj
