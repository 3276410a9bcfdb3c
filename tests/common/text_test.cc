#include "common/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dsj::text {
namespace {

TEST(TextTest, EditDistanceCountsSwapsOnce) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("persitence", "persistence"), 1);
  EXPECT_EQ(edit_distance("satge", "stage"), 1);
}

TEST(TextTest, ClosestFindsTheUsualSlips) {
  const std::vector<std::string> names = {"overlap_comm", "stage3_param_persistence_threshold",
                                          "gradient_clipping", "stage",
                                          "per_device_train_batch_size"};
  EXPECT_EQ(closest("comm_overlap", names), "overlap_comm");
  EXPECT_EQ(closest("stage3_param_persitence_threshold", names),
            "stage3_param_persistence_threshold");
  EXPECT_EQ(closest("gradient_cliping", names), "gradient_clipping");
  EXPECT_EQ(closest("Stage", names), "stage");
  EXPECT_EQ(closest("perDeviceTrainBatchSize", names), "per_device_train_batch_size");
  EXPECT_EQ(closest("num_layers", names), "");
  EXPECT_EQ(closest("s", names), "");
  EXPECT_EQ(did_you_mean("stag", names), "did you mean \"stage\"?");
  EXPECT_EQ(did_you_mean("tensor_parallel", names), "");
  const std::vector<std::string> short_names = {"amp", "lr"};
  EXPECT_EQ(closest("msamp", short_names), "");
  EXPECT_EQ(closest("rl", short_names), "lr");
  EXPECT_EQ(closest("anp", short_names), "amp");
}

TEST(TextTest, NumbersAsPeopleWriteThem) {
  EXPECT_EQ(parse_int("5e8"), 500000000);
  EXPECT_EQ(parse_int("-3"), -3);
  EXPECT_EQ(parse_int("9007199254740993"), 9007199254740993);
  EXPECT_EQ(parse_int("2.5"), std::nullopt);
  EXPECT_EQ(parse_int("1e30"), std::nullopt);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_int("3 apples"), std::nullopt);
  EXPECT_DOUBLE_EQ(*parse_double("1e-6"), 1e-6);
  EXPECT_DOUBLE_EQ(*parse_double("0."), 0.0);
  for (const char* bad : {"", " ", "nan", "inf", "-inf", "-", "+", "1e999", "0x10", "auto"})
    EXPECT_FALSE(parse_double(bad)) << bad;
  EXPECT_EQ(parse_bool("True"), true);
  EXPECT_EQ(parse_bool("0"), false);
  EXPECT_EQ(parse_bool("maybe"), std::nullopt);
  EXPECT_EQ(number(5e8), "500000000");
  EXPECT_EQ(number(0.1), "0.1");
  EXPECT_EQ(number(1e-6), "1e-06");
}

}  // namespace
}  // namespace dsj::text
