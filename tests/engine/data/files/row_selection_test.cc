#include "engine/data/files/row_selection.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

using Numbers = std::vector<int64_t>;

const Numbers kThree = {5, 3, 8};

Numbers selected(const RowSelection& selection, const Numbers& rows = kThree) {
  const auto order = selected_rows(selection, rows);
  EXPECT_TRUE(order) << order.error().to_string();
  return order ? *order : Numbers{-1};
}

TEST(RowSelection, ByDefaultAllRowsKeepTheirOrder) {
  EXPECT_EQ(selected({}), Numbers());
  EXPECT_EQ(selected({.max_samples = 8}), Numbers());
  EXPECT_EQ(selected({.mix = Mix::InterleaveOver}, {4}), Numbers());
}

TEST(RowSelection, MaxSamplesTakesTheFirstOfEachDataSet) {
  EXPECT_EQ(selected({.max_samples = 2}), (Numbers{0, 1, 5, 6, 8, 9}));
  EXPECT_EQ(selected({.max_samples = 4}), (Numbers{0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11}));
}

// Expected values: datasets 5.2.0, interleave_datasets.
TEST(RowSelection, InterleavesLikeDatasets) {
  EXPECT_EQ(selected({.mix = Mix::InterleaveUnder}), (Numbers{0, 5, 8, 1, 6, 9, 2, 7, 10}));
  EXPECT_EQ(
      selected({.mix = Mix::InterleaveOver}),
      (Numbers{0, 5, 8, 1, 6, 9, 2, 7, 10, 3, 5, 11, 4, 6, 12, 0, 7, 13, 1, 5, 14, 2, 6, 15}));
  RowSelection weighted{.mix = Mix::InterleaveUnder, .weights = {0.5, 0.2, 0.3}, .seed = 42};
  EXPECT_EQ(selected(weighted), (Numbers{8, 0, 9, 5, 1, 10, 11, 12, 2, 3, 4}));
  weighted.mix = Mix::InterleaveOver;
  EXPECT_EQ(selected(weighted),
            (Numbers{8, 0, 9, 5, 1, 10, 11, 12, 2, 3, 4, 13, 6, 14, 0, 1, 7, 2, 15}));
}

TEST(RowSelection, ALongMixtureEqualsThatOfDatasets) {
  const Numbers order =
      selected({.mix = Mix::InterleaveOver, .weights = {0.9, 0.1}, .seed = 3}, {2000, 900});
  EXPECT_EQ(order.size(), 9034u);
  int64_t sum = 0;
  for (size_t i = 0; i < order.size(); ++i) sum += static_cast<int64_t>(i) * order[i];
  EXPECT_EQ(sum % 1000003, 773076);
}

// Expected values: datasets 5.2.0, train_test_split.
TEST(RowSelection, HeldOutRowsComeFirst) {
  struct Case {
    int64_t rows;
    double size;
    uint64_t seed;
    Numbers held;
  };
  for (const Case& one :
       {Case{20, 0.15, 42, {9, 14, 15}}, {20, 3, 42, {9, 14, 15}}, {33, 0.1, 7, {4, 10, 14, 22}}}) {
    const Numbers order = selected({.held_out = one.size, .seed = one.seed}, {one.rows});
    ASSERT_EQ(std::ssize(order), one.rows);
    const auto held = held_out_count(one.size, one.rows);
    EXPECT_EQ(Numbers(order.begin(), order.begin() + held), one.held);
    EXPECT_TRUE(std::is_sorted(order.begin() + held, order.end()));
  }
}

TEST(RowSelection, ParsesTheFieldsOfAJob) {
  const auto read = selection_of(9, "interleave_over", "0.5, 2", 0.1, 7);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->weights, (std::vector<double>{0.5, 2}));
  EXPECT_EQ(selection_text(*read),
            "maxSamples 9, mixStrategy interleave_over, weight 0.5, weight 2, valSize 0.1, seed 7");
  EXPECT_EQ(selection_text(*selection_of(0, "", "", 0, 7)), "");
}

TEST(RowSelection, RefusesContradictingFields) {
  const auto said = [](const auto& result) {
    return result ? std::string() : result.error().to_string();
  };
  EXPECT_NE(said(selection_of(0, "concat", "1,2", 0, 0)).find("mixStrategy"), std::string::npos);
  EXPECT_NE(said(selection_of(0, "interleave_under", "1,x", 0, 0)).find("\"x\" is not a weight"),
            std::string::npos);
  EXPECT_NE(said(selection_of(0, "interleave_under", "0,0", 0, 0)).find("more than 0"),
            std::string::npos);
  const RowSelection two{.mix = Mix::InterleaveUnder, .weights = {1, 2}};
  EXPECT_NE(said(selected_rows(two, kThree)).find("2 weights for 3 data sets"), std::string::npos);
  const RowSelection never{.mix = Mix::InterleaveOver, .weights = {1, 0, 1}};
  EXPECT_NE(said(selected_rows(never, kThree)).find("weight 0"), std::string::npos);
}

}  // namespace
}  // namespace dsj::data
