#include "engine/data/batch.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

TEST(Batch, PadsAtTheRight) {
  const std::vector<Sample> samples = {
      {{1, 2, 3}, {-100, 2, 3}}, {{4}, {4}}, {{5, 6}, {-100, -100}}};
  const Batch batch = collate(samples, 9);
  EXPECT_EQ(batch.rows, 3);
  EXPECT_EQ(batch.length, 3);
  EXPECT_EQ(batch.input_ids, (std::vector<int64_t>{1, 2, 3, 4, 9, 9, 5, 6, 9}));
  EXPECT_EQ(batch.labels, (std::vector<int64_t>{-100, 2, 3, 4, -100, -100, -100, -100, -100}));
  EXPECT_EQ(batch.row_lengths, (std::vector<int64_t>{3, 1, 2}));
  EXPECT_EQ(batch.tokens, 6);
}

TEST(Batch, TheFirstLabelOfARowIsNoTarget) {
  const std::vector<Sample> samples = {{{1, 2, 3}, {1, 2, 3}}, {{4}, {4}}};
  EXPECT_EQ(collate(samples, 0).targets, 2);
}

TEST(BatchDeathTest, LabelsOfAnotherLengthStop) {
  const std::vector<Sample> samples = {{{1, 2}, {1}}};
  EXPECT_DEATH(collate(samples, 0), "check failed");
  EXPECT_DEATH(collate({}, 0), "check failed");
}

}  // namespace
}  // namespace dsj::data
