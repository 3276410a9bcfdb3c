#include "engine/checkpoint/holders.h"

#include <gtest/gtest.h>

namespace dsj::checkpoint {
namespace {

using Lists = std::vector<std::vector<Holders>>;

Result<Lists> of(const std::vector<Extent>& extents, std::vector<HeldRange> ranges) {
  return holders_of(extents, std::move(ranges), "/c");
}

TEST(HoldersTest, EqualSlicesOfNeighboursAreOneLine) {
  const std::vector<Extent> extents = {{"master", "w", 4096 * 10 + 3}, {"master", "none", 0}};
  std::vector<HeldRange> ranges = {{0, 4095, 0, 3}};  // the end of the part before
  for (int part = 4095; part >= 0; --part) ranges.push_back({0, part, 3 + part * 10, 10});
  ranges.push_back({1, 7, 0, 0});
  const auto found = of(extents, ranges);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(*found, (Lists{{{.offset = 0, .length = 3, .part = 4095},
                            {.offset = 3, .length = 10, .part = 0, .count = 4096}},
                           {}}));
  const auto& w = (*found)[0];
  EXPECT_EQ(part_of(w, 0), 4095);
  EXPECT_EQ(part_of(w, 2), 4095);
  EXPECT_EQ(part_of(w, 3), 0);
  EXPECT_EQ(part_of(w, 12), 0);
  EXPECT_EQ(part_of(w, 13), 1);
  EXPECT_EQ(part_of(w, 4096 * 10 + 2), 4095);
  EXPECT_TRUE(covers(w, 4096 * 10 + 3, 4096));
}

TEST(HoldersTest, UnequalSlicesAreALineEach) {
  const auto found = of({{"m", "w", 9}}, {{0, 0, 0, 4}, {0, 1, 4, 4}, {0, 2, 8, 1}});
  ASSERT_TRUE(found);
  EXPECT_EQ((*found)[0].size(), 2u);
  EXPECT_EQ(part_of((*found)[0], 7), 1);
  EXPECT_EQ(part_of((*found)[0], 8), 2);
}

TEST(HoldersTest, GapsAndOverlapsAreNamed) {
  const std::vector<Extent> extents = {{"master", "w", 10}};
  EXPECT_EQ(of(extents, {{0, 0, 0, 4}}).error().message,
            "master of w: 4 of 10 elements are written");
  EXPECT_EQ(of(extents, {{0, 0, 4, 6}}).error().message,
            "master of w: elements from 0 on are missing");
  EXPECT_EQ(of(extents, {{0, 0, 0, 4}, {0, 1, 3, 7}}).error().message,
            "master of w: elements from 3 on are written twice");
  EXPECT_EQ(of(extents, {{0, 0, 0, 11}}).error().message,
            "master of w: 11 of 10 elements are written");
}

TEST(HoldersTest, WhatIsReadIsNotTrusted) {
  const std::vector<std::vector<Holders>> bad = {
      {},
      {{.offset = 1, .length = 9, .part = 0}},
      {{.offset = 0, .length = 9, .part = 0}},
      {{.offset = 0, .length = 11, .part = 0}},
      {{.offset = 0, .length = 0, .part = 0}},
      {{.offset = 0, .length = 10, .part = 2}},
      {{.offset = 0, .length = 10, .part = -1}},
      {{.offset = 0, .length = 10, .part = 0, .count = 0}},
      {{.offset = 0, .length = 5, .part = 1, .count = 2}},
      {{.offset = 0, .length = INT64_MAX / 2 + 6, .part = 0, .count = 2}},
      {{.offset = 0, .length = 5, .part = 0}, {.offset = 4, .length = 6, .part = 1}}};
  for (const auto& holders : bad) EXPECT_FALSE(covers(holders, 10, 2)) << &holders - bad.data();
  EXPECT_TRUE(
      covers(std::vector<Holders>{{.offset = 0, .length = 5, .part = 0, .count = 2}}, 10, 2));
  EXPECT_TRUE(covers({}, 0, 1));
}

}  // namespace
}  // namespace dsj::checkpoint
