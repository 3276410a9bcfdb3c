#include "engine/models/unit/kept_tokens.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/models/unit/unit.h"

namespace dsj::models {
namespace {

using testing::ElementsAre;

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

TEST(KeptTokens, ADrawIsRisingWithoutRepeatsAndOfTheAskedSize) {
  for (const int64_t length : {1, 2, 7, 64, 2048}) {
    for (const int64_t kept : {int64_t{0}, length / 2, length}) {
      const auto drawn = draw_tokens(length, kept, 99);
      ASSERT_EQ(std::ssize(drawn), kept);
      EXPECT_EQ(std::ranges::adjacent_find(drawn, std::greater_equal<>()), drawn.end());
      for (const int64_t token : drawn) EXPECT_TRUE(token >= 0 && token < length);
    }
  }
}

/// On every machine: a resumed run may go on on another.
TEST(KeptTokens, ADrawIsTheSameEverywhere) {
  EXPECT_THAT(draw_tokens(16, 6, 1234), ElementsAre(2, 3, 7, 8, 10, 15));
  EXPECT_EQ(kept_key(42, 7, 3, 8), 11471434144143630306u);
}

/// Every subset of 2 of 5 is drawn about equally often: chi-square with 9 degrees of freedom, whose
/// 1 in 10^6 point is 45. The keys are fixed, so the number is, too.
TEST(KeptTokens, EverySubsetIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> seen;
  constexpr int kDraws = 10'000;
  for (int i = 0; i < kDraws; ++i) ++seen[draw_tokens(5, 2, kept_key(1, i, 2, 3))];
  ASSERT_EQ(seen.size(), 10u);
  double chi = 0;
  for (const auto& [subset, count] : seen)
    chi += std::pow(count - kDraws / 10.0, 2) / (kDraws / 10.0);
  EXPECT_LT(chi, 45);
}

TEST(KeptTokens, RowsAreDrawnByThemselvesAndShortOnesStayWhole) {
  const std::vector<int64_t> lengths = {9, 3, 9, 4};
  const RowBounds rows(lengths, at::kCPU);
  const auto kept = keep_tokens(rows, 4, 5, at::kCPU);
  ASSERT_TRUE(kept);
  EXPECT_THAT(kept->rows.starts(), ElementsAre(0, 4, 7, 11, 15));
  const auto indices = numbers(kept->indices), positions = numbers(kept->rows.positions());
  ASSERT_EQ(indices.size(), 15u);
  EXPECT_TRUE(std::ranges::is_sorted(indices));
  for (int64_t row = 0; row < 4; ++row) {
    const int64_t first = kept->rows.starts()[row], start = rows.starts()[row];
    const auto drawn = draw_tokens(lengths[row], kept->rows.length(row), dropout_key(5, row));
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_EQ(positions[first + i], drawn[i]);
      EXPECT_EQ(indices[first + i], start + drawn[i]);
    }
  }
  EXPECT_THAT(std::vector(positions.begin() + 4, positions.begin() + 7), ElementsAre(0, 1, 2));
}

TEST(KeptTokens, NothingIsDroppedFromShortRows) {
  const std::vector<int64_t> lengths = {4, 3};
  EXPECT_FALSE(keep_tokens(RowBounds(lengths, at::kCPU), 4, 5, at::kCPU));
  EXPECT_TRUE(keep_tokens(RowBounds(lengths, at::kCPU), 3, 5, at::kCPU));
}

TEST(KeptTokens, SeedStepLayerAndRowsEachChangeTheDraw) {
  const auto draw = [](uint64_t seed, int64_t step, int64_t layer, int64_t row) {
    return draw_tokens(64, 32, kept_key(seed, step, layer, row));
  };
  const auto one = draw(1, 2, 3, 4);
  EXPECT_EQ(draw(1, 2, 3, 4), one);
  for (const auto& other : {draw(2, 2, 3, 4), draw(1, 3, 3, 4), draw(1, 2, 4, 4), draw(1, 2, 3, 5)})
    EXPECT_NE(other, one);
}

}  // namespace
}  // namespace dsj::models
