// sequence_parallel_size: the world sizes that it fits, the batch, and its conflicts.
// Expected values are DeepSpeed 0.19's arithmetic: the world size over sequence_parallel_size is what
// the batch is divided by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "job/dsconfig/config/batch.h"
#include "job/dsconfig/config/group_sizes.h"
#include "job/dsconfig/resolve.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// What keeps the run from starting, one finding a line.
std::string refused(const json& config, int world, const TrainingArgs& training = {}) {
  std::string all;
  for (const Finding& finding : resolve(config, training, {.world_size = world}).findings)
    if (finding.severity != Finding::Severity::Warning)
      all += finding.path + ": " + finding.message + " (" + finding.hint + ")\n";
  return all;
}

TEST(SequenceParallelTest, RowsOfAStepAreOfGroupsOfRanks) {
  std::mt19937 random(3);
  const auto draw = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  for (int round = 0; round < 300; ++round) {
    const int64_t together = draw(6), groups = draw(6), micro = draw(5), accumulation = draw(4);
    const int world = static_cast<int>(together * groups);
    const int64_t train = micro * accumulation * groups;
    const json size = {{"sequence_parallel_size", together}};
    const json given[] = {
        {{"train_micro_batch_size_per_gpu", micro}, {"gradient_accumulation_steps", accumulation}},
        {{"train_batch_size", train}, {"train_micro_batch_size_per_gpu", micro}},
        {{"train_batch_size", train}, {"gradient_accumulation_steps", accumulation}},
    };
    for (json config : given) {
      SCOPED_TRACE(config.dump() + ", " + std::to_string(world) + " ranks in groups of " +
                   std::to_string(together));
      config.update(size);
      const Resolution resolution = resolve(config, {}, {.world_size = world});
      EXPECT_TRUE(resolution.runnable());
      EXPECT_EQ(resolution.config.sequence_parallel_size, together);
      EXPECT_EQ(resolution.config.train_batch_size, train);
      EXPECT_EQ(resolution.config.micro_batch_size, micro);
      EXPECT_EQ(resolution.config.gradient_accumulation_steps, accumulation);
    }
    // All three decide the world where there is no job.
    const json all = {{"train_batch_size", train},
                      {"train_micro_batch_size_per_gpu", micro},
                      {"gradient_accumulation_steps", accumulation},
                      {"sequence_parallel_size", together}};
    EXPECT_TRUE(resolve_alone(all).ok()) << all.dump();
  }
}

TEST(SequenceParallelTest, ABatchOfAllRanksIsRefused) {
  const json config = {{"train_batch_size", 8},
                       {"train_micro_batch_size_per_gpu", 2},
                       {"gradient_accumulation_steps", 1},
                       {"sequence_parallel_size", 2}};
  EXPECT_THAT(refused(config, 4), HasSubstr("world size 4 / sequence_parallel_size 2"));
  EXPECT_EQ(refused(config, 8), "");
}

TEST(SequenceParallelTest, GroupsDivideTheWorld) {
  for (int world = 1; world <= 12; ++world) {
    for (int together = 1; together <= 12; ++together) {
      const json config = {{"train_micro_batch_size_per_gpu", 1},
                           {"sequence_parallel_size", together}};
      const std::string why = refused(config, world);
      ResolvedConfig resolved;
      resolved.sequence_parallel_size = together;
      EXPECT_EQ(fits_groups(resolved, world), world % together == 0);
      if (world % together == 0) {
        EXPECT_EQ(why, "");
      } else {
        EXPECT_THAT(why, HasSubstr("sequence_parallel_size: it is " + std::to_string(together)));
        EXPECT_THAT(why, HasSubstr("divisor of the world size"));
      }
    }
  }
}

TEST(SequenceParallelTest, WhatIsNotBuiltWithCutRowsIsNamed) {
  const auto with = [](const char* more) {
    json config = {{"train_micro_batch_size_per_gpu", 1}, {"sequence_parallel_size", 2}};
    config.update(json::parse(more));
    return config;
  };
  const std::pair<const char*, const char*> keys[] = {
      {R"({"sparse_gradients": true})", "sparse_gradients"},
      {R"({"gradient_allreduce_op": "sum"})", "gradient_allreduce_op sum"},
      {R"({"flops_profiler": {"enabled": true}})", "flops_profiler"},
      {R"({"optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3}}})", "1-bit"},
  };
  for (const auto& [more, name] : keys)
    EXPECT_THAT(refused(with(more), 2), HasSubstr(std::string("which is on (leave one")))
        << more << " " << name;
  for (const auto& [more, name] : keys) {
    EXPECT_THAT(refused(with(more), 2), HasSubstr(name));
    json alone = with(more);
    alone["sequence_parallel_size"] = 1;
    EXPECT_THAT(refused(alone, 2), testing::Not(HasSubstr("sequence_parallel_size")));
  }
  TrainingArgs dpo;
  dpo.objective = "dpo";
  EXPECT_THAT(refused(with("{}"), 2, dpo), HasSubstr("training.objective dpo"));
  const json elastic = json::parse(R"({"sequence_parallel_size": 2, "elasticity": {"enabled": true,
      "max_train_batch_size": 24, "micro_batch_sizes": [1], "min_gpus": 1, "max_gpus": 12,
      "version": 0.1}})");
  EXPECT_THAT(refused(elastic, 2), HasSubstr("elasticity, which is on"));
}

}  // namespace
}  // namespace dsj::dsconfig
