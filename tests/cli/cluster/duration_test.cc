#include "cli/cluster/duration.h"

#include <gtest/gtest.h>

#include <random>

namespace dsj::cli {
namespace {

using std::chrono::milliseconds;

std::optional<int64_t> ms(const std::string& text) {
  const auto read = parse_duration(text);
  return read ? std::optional(read->count()) : std::nullopt;
}

// The rows of Go's own test of time.ParseDuration, in milliseconds, except a plain number.
TEST(Duration, IsParsedLikeInGo) {
  EXPECT_EQ(ms("0"), 0);
  EXPECT_EQ(ms("5s"), 5000);
  EXPECT_EQ(ms("30s"), 30000);
  EXPECT_EQ(ms("1478s"), 1478000);
  EXPECT_EQ(ms("-5s"), -5000);
  EXPECT_EQ(ms("+5s"), 5000);
  EXPECT_EQ(ms("-0"), 0);
  EXPECT_EQ(ms("5.0s"), 5000);
  EXPECT_EQ(ms("5.6s"), 5600);
  EXPECT_EQ(ms("5.s"), 5000);
  EXPECT_EQ(ms(".5s"), 500);
  EXPECT_EQ(ms("1.004s"), 1004);
  EXPECT_EQ(ms("10000000ns"), 10);
  EXPECT_EQ(ms("11000us"), 11);
  EXPECT_EQ(ms("12000\u00b5s"), 12);
  EXPECT_EQ(ms("12000\u03bcs"), 12);
  EXPECT_EQ(ms("13ms"), 13);
  EXPECT_EQ(ms("15m"), 15 * 60000);
  EXPECT_EQ(ms("16h"), 16 * 3600000);
  EXPECT_EQ(ms("3h30m"), 3 * 3600000 + 30 * 60000);
  EXPECT_EQ(ms("10.5s4m"), 4 * 60000 + 10500);
  EXPECT_EQ(ms("-2m3.4s"), -(2 * 60000 + 3400));
  EXPECT_EQ(ms("1h2m3s4ms5us6ns"), 3600000 + 120000 + 3000 + 4);
  EXPECT_EQ(ms("0.3333333333333333333h"), 1200000);
  for (const char* wrong :
       {"", "-", "s", ".", "-.", ".s", "+.s", "3000000h", "1d", "1 s", "s1", "1s3", "1sm", "e3"})
    EXPECT_FALSE(ms(wrong)) << wrong;
}

TEST(Duration, APlainNumberIsInSeconds) {
  EXPECT_EQ(ms("90"), 90000);
  EXPECT_EQ(ms("1.5"), 1500);
}

// What Go prints for a duration (time.Duration.String) is read back.
TEST(Duration, HoursMinutesAndSecondsAddUp) {
  std::mt19937 draw(31);
  for (int i = 0; i < 1000; ++i) {
    const int h = static_cast<int>(draw() % 100), m = static_cast<int>(draw() % 60),
              s = static_cast<int>(draw() % 60);
    const std::string text =
        std::to_string(h) + "h" + std::to_string(m) + "m" + std::to_string(s) + "s";
    EXPECT_EQ(ms(text), ((h * 60 + m) * 60 + s) * 1000) << text;
  }
}

TEST(Duration, IsAnArgument) {
  std::optional<milliseconds> to;
  EXPECT_FALSE(take_duration(to, true)("2m"));
  EXPECT_EQ(to, std::chrono::minutes(2));
  EXPECT_EQ(take_duration(to, true)("0s"),
            "\"0s\": expected a duration like 90s, 5m or 1h30m, longer than 0");
  EXPECT_EQ(take_duration(to)("soon"), "\"soon\": expected a duration like 90s, 5m or 1h30m");
  EXPECT_FALSE(take_timeout(to)("0"));
  EXPECT_EQ(to, milliseconds(0));
  EXPECT_FALSE(take_timeout(to)("-1s"));
  EXPECT_EQ(to, std::chrono::weeks(1));
}

}  // namespace
}  // namespace dsj::cli
