#include "engine/models/micro_batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "tests/engine/support/micro_batch.h"

namespace dsj::models {
namespace {

using testing::ElementsAre;

std::vector<int64_t> values(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

TEST(MicroBatch, TargetsAreTheNextLabelsOfTheirRow) {
  const auto batch =
      testing_support::ragged({{5, 6, 7}, {8}, {9, 3, 4}}, {{5, -100, 7}, {8}, {-100, 3, -100}});
  EXPECT_EQ(batch.targets().count, 2);
  EXPECT_THAT(values(batch.targets().tokens), ElementsAre(1, 4));
  EXPECT_THAT(values(batch.targets().labels), ElementsAre(7, 3))
      << "a row's first label is no target of the row before";
  ASSERT_NE(batch.last_outputs(), nullptr);
  EXPECT_TRUE(batch.last_outputs()->equal(batch.targets().tokens));
}

TEST(MicroBatch, TheLastLayerGivesAllOutputsWhereNoneOrNearlyAllAreTargets) {
  const auto with_targets = [](int64_t length, int64_t targets) {
    std::vector<int64_t> labels(length, -100);
    std::fill(labels.end() - targets, labels.end(), 1);
    return testing_support::ragged({std::vector<int64_t>(length, 2)}, {labels});
  };
  EXPECT_EQ(with_targets(32, 0).last_outputs(), nullptr);
  EXPECT_EQ(with_targets(32, 31).last_outputs(), nullptr) << "one of 32 is left out";
  EXPECT_NE(with_targets(32, 30).last_outputs(), nullptr) << "one of 16";
}

TEST(MicroBatch, HasItsRowsOrDoesNotCompile) {
  static_assert(!std::is_default_constructible_v<MicroBatch>);
  static_assert(!std::is_constructible_v<MicroBatch, at::Tensor, at::Tensor>);
  const at::Tensor ids = at::zeros({4}, at::kLong);
  const std::vector<int64_t> lengths = {1, 2};
  EXPECT_DEATH(MicroBatch(ids, ids, {}), "0 tokens in rows, 4 ids");
  EXPECT_DEATH(MicroBatch(ids, ids, RowBounds(lengths, at::kCPU)), "3 tokens in rows, 4 ids");
  const std::vector<int64_t> all = {4};
  EXPECT_DEATH(MicroBatch(ids, at::zeros({3}, at::kLong), RowBounds(all, at::kCPU)), "labels_");
}

}  // namespace
}  // namespace dsj::models
