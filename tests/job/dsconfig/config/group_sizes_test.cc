#include "job/dsconfig/config/group_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// The first error for ds_config's zero section on so many ranks; empty: none.
std::string groups_error(const char* zero, int world) {
  const json config = {{"train_micro_batch_size_per_gpu", 1},
                       {"zero_optimization", json::parse(zero)}};
  for (const Finding& finding : resolve(config, {}, {.world_size = world}).findings)
    if (finding.severity != Finding::Severity::Warning)
      return finding.path + ": " + finding.message;
  return "";
}

TEST(GroupSizesTest, GroupsDivideTheWorld) {
  const char* hpz = R"({"stage": 3, "zero_hpz_partition_size": 4})";
  const char* mics = R"({"stage": 3, "mics_shard_size": 4})";
  for (const char* zero : {hpz, mics}) {
    EXPECT_EQ(groups_error(zero, 4), "");
    EXPECT_EQ(groups_error(zero, 8), "");
    EXPECT_THAT(groups_error(zero, 6), HasSubstr("6 is not divisible by 4"));
  }
  EXPECT_THAT(groups_error(mics, 2), HasSubstr("is 4, but there are 2 ranks"));
  EXPECT_THAT(groups_error(mics, 1), HasSubstr("is 4, but there is 1 rank"));
  EXPECT_THAT(groups_error(hpz, 6), HasSubstr("zero_optimization.zero_hpz_partition_size"));
  EXPECT_THAT(groups_error(mics, 6), HasSubstr("zero_optimization.mics_shard_size"));
  EXPECT_THAT(
      groups_error(R"({"stage": 3, "zero_hpz_partition_size": 2, "mics_shard_size": 2})", 4),
      HasSubstr("cannot be combined with mics_shard_size"));
  EXPECT_THAT(
      groups_error(R"({"stage": 3, "zero_quantized_gradients": true, "mics_shard_size": 2})", 4),
      HasSubstr("zero_quantized_gradients: it cannot be combined with mics_shard_size"));
  EXPECT_THAT(groups_error(R"({"stage": 3, "zero_quantized_nontrainable_weights": true,
                               "offload_param": {"device": "cpu"}})",
                           4),
              HasSubstr("it cannot be combined with offload_param"));
}

/// In DeepSpeed hpZ's groups have min(N, world) ranks, which must divide the world; MiCS's have N.
TEST(GroupSizesTest, OnWhichWorldsAJobRuns) {
  for (int world = 1; world <= 24; ++world) {
    for (int size = 2; size <= 24; ++size) {
      const std::string number = std::to_string(size);
      const std::string hpz = R"({"stage": 3, "zero_hpz_partition_size": )" + number + "}";
      const std::string mics = R"({"stage": 3, "mics_shard_size": )" + number + "}";
      EXPECT_EQ(groups_error(hpz.c_str(), world).empty(), size > world || world % size == 0)
          << size << " of " << world;
      EXPECT_EQ(groups_error(mics.c_str(), world).empty(), size <= world && world % size == 0)
          << size << " of " << world;
    }
  }
}

/// As in DeepSpeed: 0 and 1 of hpZ, and MiCS below 1, are off; other stages do not look.
TEST(GroupSizesTest, OffAndOtherStages) {
  for (const char* zero :
       {R"({"stage": 3, "zero_hpz_partition_size": 1})",
        R"({"stage": 3, "zero_hpz_partition_size": 0})", R"({"stage": 3, "mics_shard_size": -1})",
        R"({"stage": 3, "mics_shard_size": 0})",
        R"({"stage": 2, "zero_hpz_partition_size": 4, "mics_shard_size": 4})"})
    EXPECT_EQ(groups_error(zero, 3), "") << zero;
}

TEST(GroupSizesTest, ElasticityKeepsTheWorldSizesThatGroupsFit) {
  json config = json::parse(R"({"elasticity": {"enabled": true, "max_train_batch_size": 24,
      "micro_batch_sizes": [1], "min_gpus": 1, "max_gpus": 12, "version": 0.1},
      "zero_optimization": {"stage": 3}})");
  const auto sizes = [&] {
    return resolve(config, {}, {.world_size = 4}).config.elastic_world_sizes;
  };
  EXPECT_THAT(sizes(), testing::Contains(3));
  config["zero_optimization"]["mics_shard_size"] = 2;
  EXPECT_FALSE(sizes().empty());
  for (const int64_t world : sizes()) EXPECT_EQ(world % 2, 0) << world;
  config["zero_optimization"]["mics_shard_size"] = 5;
  const auto refused = resolve_alone(config);
  EXPECT_FALSE(refused.ok());
}

}  // namespace
}  // namespace dsj::dsconfig
