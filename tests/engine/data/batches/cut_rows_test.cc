#include "engine/data/batches/cut_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::data {
namespace {

using testing::ElementsAre;

Batch three_rows() {
  const std::vector<Sample> rows = {
      {{1, 2, 3, 4}, {-100, -100, 3, 4}}, {{5, 6}, {5, 6}}, {{7, 8, 9}, {-100, 8, -100}}};
  return collate(rows);
}

TEST(CutRows, KeepsTheBeginningOfEachRowWithItsLabels) {
  const Batch cut = cut_rows(three_rows(), 2);
  EXPECT_THAT(cut.row_lengths, ElementsAre(2, 2, 2));
  EXPECT_THAT(cut.input_ids, ElementsAre(1, 2, 5, 6, 7, 8));
  EXPECT_THAT(cut.labels, ElementsAre(-100, -100, 5, 6, -100, 8));
  EXPECT_EQ(cut.tokens(), 6);
  EXPECT_THAT(cut_rows(three_rows(), 3).row_lengths, ElementsAre(3, 2, 3));
}

TEST(CutRows, ALongerLengthChangesNothing) {
  const Batch whole = three_rows(), same = cut_rows(whole, 4);
  EXPECT_EQ(same.input_ids, whole.input_ids);
  EXPECT_EQ(same.labels, whole.labels);
  EXPECT_EQ(same.row_lengths, whole.row_lengths);
}

TEST(CutRows, CountsLabelsThatAreNotIgnoredAfterTheFirstToken) {
  EXPECT_EQ(targets(three_rows()), 2 + 1 + 1);
  EXPECT_EQ(targets(cut_rows(three_rows(), 2)), 0 + 1 + 1);
  EXPECT_EQ(targets(cut_rows(three_rows(), 1)), 0);
}

}  // namespace
}  // namespace dsj::data
