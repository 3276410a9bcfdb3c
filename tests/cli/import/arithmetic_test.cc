#include "cli/import/arithmetic.h"

#include <gtest/gtest.h>

#include <random>

namespace dsj::jobimport {
namespace {

std::optional<int64_t> value(const std::string& text) {
  return whole_arithmetic(text, [](const std::string& name) -> std::optional<int64_t> {
    if (name == "A") return 12;
    if (name == "B_2") return 5;
    return std::nullopt;
  });
}

TEST(Arithmetic, AsAShellDoes) {
  EXPECT_EQ(value("1+2*3"), 7);
  EXPECT_EQ(value(" ( $A - B_2 ) * ${A} / 10 % 6"), 2);
  EXPECT_EQ(value("-7 / 2"), -3);
  EXPECT_EQ(value("-7 % 2"), -1);
  EXPECT_EQ(value("10-3-2"), 5);
}

TEST(Arithmetic, WhatIsNotKnownHasNoValue) {
  for (const char* text : {"", "A+", "C", "1/0", "2**3", "A<B_2", "010", "(1", "1)", "${A", "$",
                           "9223372036854775807+1", "1 2", "A=3"})
    EXPECT_EQ(value(text), std::nullopt) << text;
  EXPECT_EQ(value(std::string(100'000, '(')), std::nullopt);
  EXPECT_EQ(value(std::string(100'000, '-') + "1"), std::nullopt);
}

/// Sums of drawn products equal what C++ computes.
TEST(Arithmetic, DrawnExpressions) {
  std::mt19937 draw(7);
  for (int round = 0; round < 1000; ++round) {
    int64_t expected = 0;
    std::string text = "0";
    for (int term = 0; term < 5; ++term) {
      const int64_t a = draw() % 1000, b = draw() % 99 + 1;
      const bool minus = draw() % 2 == 0, divides = draw() % 2 == 0;
      const int64_t part = divides ? a / b : a * b;
      expected += minus ? -part : part;
      text +=
          (minus ? " - " : "+") + std::to_string(a) + (divides ? "/" : " * ") + std::to_string(b);
    }
    EXPECT_EQ(value(text), expected) << text;
  }
}

}  // namespace
}  // namespace dsj::jobimport
