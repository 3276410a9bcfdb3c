#include "engine/models/ops/row_bounds.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::models {
namespace {

using testing::ElementsAre;

std::vector<int64_t> positions(const RowBounds& rows) {
  const auto* data = rows.positions().const_data_ptr<int64_t>();
  return {data, data + rows.positions().numel()};
}

TEST(RowBounds, SayWhereRowsBeginAndWhatNeighboursShareALength) {
  const std::vector<int64_t> lengths = {2, 3, 3, 1};
  const RowBounds rows(lengths, at::kCPU);
  EXPECT_EQ(rows.rows(), 4);
  EXPECT_EQ(rows.tokens(), 9);
  EXPECT_EQ(rows.positions_end(), 3);
  EXPECT_THAT(rows.starts(), ElementsAre(0, 2, 5, 8, 9));
  EXPECT_FALSE(rows.starts_there().defined()) << "the CPU attends row by row: no copy";
  EXPECT_EQ(rows.length(1), 3);
  EXPECT_THAT(positions(rows), ElementsAre(0, 1, 0, 1, 2, 0, 1, 2, 0));
  ASSERT_EQ(rows.runs().size(), 3u);
  const RowBounds::Run& run = rows.runs()[1];
  EXPECT_THAT((std::vector{run.row, run.rows, run.start, run.length, run.first, run.tokens()}),
              ElementsAre(1, 2, 2, 3, 0, 6));
}

TEST(RowBounds, TokensThatAreLeftKeepTheirPositions) {
  const std::vector<int64_t> lengths = {2, 2, 3};
  const RowBounds rows(lengths, {1, 7, 0, 2, 0, 1, 2}, at::kCPU);
  EXPECT_EQ(rows.positions_end(), 8);
  EXPECT_THAT(positions(rows), ElementsAre(1, 7, 0, 2, 0, 1, 2));
  EXPECT_THAT(rows.starts(), ElementsAre(0, 2, 4, 7));
  ASSERT_EQ(rows.runs().size(), 2u) << "attention sees rows of equal length together";
  EXPECT_EQ(rows.runs()[0].rows, 2);
}

TEST(RowBounds, RowsMayBeginAnywhere) {
  const std::vector<int64_t> ones = {1, 1, 1}, firsts = {4, 4, 9};
  const RowBounds rows(ones, at::kCPU, firsts);
  EXPECT_EQ(rows.positions_end(), 10);
  EXPECT_THAT(positions(rows), ElementsAre(4, 4, 9));
  ASSERT_EQ(rows.runs().size(), 2u) << "one position, one run";
  EXPECT_EQ(rows.runs()[1].first, 9);
  EXPECT_EQ(rows.runs()[1].start, 2);
}

TEST(RowBounds, NoRowsAreNoTokens) {
  EXPECT_EQ(RowBounds().tokens(), 0);
  EXPECT_EQ(RowBounds().rows(), 0);
}

TEST(RowBoundsDeathTest, AnEmptyRowStops) {
  const std::vector<int64_t> lengths = {2, 0};
  EXPECT_DEATH(RowBounds(lengths, at::kCPU), "check failed");
}

}  // namespace
}  // namespace dsj::models
