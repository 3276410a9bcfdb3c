#include "operator/observe/times.h"

#include <cmath>
#include <cstdio>

namespace dsj::op {

std::string to_text(Time time) {
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  char text[64];
  std::snprintf(text, sizeof text, "%04d-%02u-%02uT%02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  std::string result = text;
  if (const auto rest = clock.subseconds().count(); rest != 0) {
    std::snprintf(text, sizeof text, ".%03d", static_cast<int>(rest));
    result += text;
  }
  return result + "Z";
}

std::optional<Time> time_from_text(const std::string& text) {
  int year = 0, hour = 0, minute = 0;
  unsigned month = 0, day = 0;
  double second = 0;
  char zone = 0;
  if (std::sscanf(text.c_str(), "%4d-%2u-%2uT%2d:%2d:%lf%c", &year, &month, &day, &hour, &minute,
                  &second, &zone) != 7 ||
      zone != 'Z') {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  if (!date.ok() || second < 0 || second >= 61) return std::nullopt;
  return Time(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + Milliseconds(std::llround(second * 1000));
}

}  // namespace dsj::op
