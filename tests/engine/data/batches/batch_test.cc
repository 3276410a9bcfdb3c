#include "engine/data/batches/batch.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

TEST(Batch, LaysRowsEndToEnd) {
  const std::vector<Sample> samples = {
      {{1, 2, 3}, {-100, 2, 3}}, {{4}, {4}}, {{5, 6}, {-100, -100}}};
  const Batch batch = collate(samples);
  EXPECT_EQ(batch.input_ids, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{-100, 2, 3, 4, -100, -100}));
  EXPECT_EQ(batch.row_lengths, (std::vector<int64_t>{3, 1, 2}));
  EXPECT_EQ(batch.tokens(), 6) << "no more than the rows have";
}

TEST(BatchDeathTest, LabelsMustHaveTheLengthOfTheIds) {
  const std::vector<Sample> samples = {{{1, 2}, {1}}};
  EXPECT_DEATH(collate(samples), "check failed");
  EXPECT_DEATH(collate({}), "check failed");
}

}  // namespace
}  // namespace dsj::data
