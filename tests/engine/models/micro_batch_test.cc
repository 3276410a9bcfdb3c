#include "engine/models/unit/micro_batch.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
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

/// Parts of drawn rows, one after the other, are the rows: tokens, positions and targets, and then a
/// row without targets that makes the parts equal.
TEST(MicroBatch, PartsTogetherAreTheWhole) {
  std::mt19937 random(11);
  const auto draw = [&](int64_t most) { return static_cast<int64_t>(random() % most); };
  for (int round = 0; round < 300; ++round) {
    std::vector<std::vector<int64_t>> ids, labels;
    for (int64_t row = 1 + draw(5); row > 0; --row) {
      auto& of_row = ids.emplace_back();
      auto& of_labels = labels.emplace_back();
      for (int64_t t = 1 + draw(9); t > 0; --t) {
        of_row.push_back(draw(100));
        of_labels.push_back(draw(3) == 0 ? -100 : of_row.back());
      }
    }
    const auto whole = testing_support::ragged(ids, labels);
    const int parts = 2 + static_cast<int>(draw(6));
    std::vector<int64_t> tokens, positions, target_tokens, target_labels;
    int64_t each = 0;
    for (int part = 0; part < parts; ++part) {
      const auto own = testing_support::ragged_part(ids, labels, {part, parts});
      ASSERT_TRUE(own.is_part());
      if (part == 0) each = own.rows().tokens();
      ASSERT_EQ(own.rows().tokens(), each) << "parts are equal";
      ASSERT_EQ(own.all_rows().tokens(), each * parts);
      ASSERT_EQ(own.all_targets(), whole.targets().count);
      for (const int64_t id : values(own.input_ids())) tokens.push_back(id);
      for (const int64_t position : values(own.rows().positions())) positions.push_back(position);
      for (const int64_t token : values(own.targets().tokens))
        target_tokens.push_back(part * each + token);
      for (const int64_t label : values(own.targets().labels)) target_labels.push_back(label);
    }
    const auto count = static_cast<size_t>(whole.rows().tokens());
    ASSERT_GE(tokens.size(), count);
    ASSERT_LT(tokens.size(), count + static_cast<size_t>(parts));
    for (size_t i = count; i < tokens.size(); ++i)
      ASSERT_EQ(positions[i], static_cast<int64_t>(i - count)) << "a row of its own";
    tokens.resize(count), positions.resize(count);
    ASSERT_EQ(tokens, values(whole.input_ids()));
    ASSERT_EQ(positions, values(whole.rows().positions()));
    ASSERT_EQ(target_tokens, values(whole.targets().tokens));
    ASSERT_EQ(target_labels, values(whole.targets().labels));
  }
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
