#include "common/day.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

TEST(Day, SecondsSince1970) {
  EXPECT_EQ(seconds_of_day("1970-01-01"), 0);
  EXPECT_EQ(seconds_of_day("1970-01-02"), 86400);
  EXPECT_EQ(seconds_of_day("2024-07-26"), 1721952000);
  EXPECT_EQ(seconds_of_day("2024-02-29"), 1709164800);
}

TEST(Day, OtherTextIsNone) {
  for (const char* text : {"", "2024-7-26", "2023-02-29", "2024-13-01", "2024-00-10", "2024-01-32",
                           "26 Jul 2024", "2024-07-26 ", "20x4-07-26", "2024/07/26"})
    EXPECT_EQ(seconds_of_day(text), std::nullopt) << text;
}

}  // namespace
}  // namespace dsj
