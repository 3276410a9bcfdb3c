#include "engine/data/packs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace dsj::data {
namespace {

using testing::ElementsAre;

std::vector<RowSize> rows_of_sizes(const std::vector<int32_t>& tokens) {
  std::vector<RowSize> rows;
  for (const int32_t count : tokens) rows.push_back({count, count - 1});
  return rows;
}

TEST(Packs, TheLongestRowFirstIntoTheFullestPackThatHasRoom) {
  // 7 opens pack 0 (room 3), 6 opens pack 1 (room 4), 4 fits pack 1 only, 3 fills pack 0, 2 opens 2.
  const auto rows = rows_of_sizes({2, 4, 7, 3, 6});
  const Packs packs(rows, 10);
  ASSERT_EQ(packs.count(), 3);
  EXPECT_THAT(packs.rows(0), ElementsAre(2, 3));
  EXPECT_THAT(packs.rows(1), ElementsAre(4, 1));
  EXPECT_THAT(packs.rows(2), ElementsAre(0));
  EXPECT_EQ(packs.sizes()[0].tokens, 10);
  EXPECT_EQ(packs.sizes()[0].targets, 8) << "each row's first token is no target";
  EXPECT_EQ(packs.sizes()[2].tokens, 2);
  EXPECT_DOUBLE_EQ(packs.filled(), 22.0 / 30);
}

/// The same rule, by looking at every pack for every row.
std::vector<std::vector<int64_t>> slow_packs(const std::vector<RowSize>& rows, int64_t capacity) {
  std::vector<int64_t> order(rows.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::ranges::stable_sort(order, std::greater<>(), [&](int64_t row) { return rows[row].tokens; });
  std::vector<std::vector<int64_t>> packs;
  std::vector<int64_t> room;
  for (const int64_t row : order) {
    int64_t best = -1;
    for (int64_t pack = 0; pack < std::ssize(packs); ++pack)
      if (room[pack] >= rows[row].tokens && (best < 0 || room[pack] < room[best])) best = pack;
    if (best < 0) {
      best = std::ssize(packs);
      packs.emplace_back();
      room.push_back(capacity);
    }
    packs[best].push_back(row);
    room[best] -= rows[row].tokens;
  }
  return packs;
}

TEST(Packs, EveryRowLiesInOnePackAsTheRuleSays) {
  std::mt19937 draw(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<int32_t> tokens(1 + draw() % 60);
    for (int32_t& count : tokens) count = static_cast<int32_t>(1 + draw() % 32);
    const auto rows = rows_of_sizes(tokens);
    const Packs packs(rows, 32);
    const auto want = slow_packs(rows, 32);
    ASSERT_EQ(packs.count(), std::ssize(want));
    for (int64_t pack = 0; pack < packs.count(); ++pack)
      ASSERT_TRUE(std::ranges::equal(packs.rows(pack), want[pack])) << "round " << round;
  }
}

TEST(Packs, ARowThatDoesNotFitIsAMistake) {
  EXPECT_DEATH(Packs(rows_of_sizes({11}), 10), "size.tokens <= capacity");
}

}  // namespace
}  // namespace dsj::data
