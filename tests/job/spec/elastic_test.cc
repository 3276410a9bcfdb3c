// Which numbers of workers an elastic job may have, and what is refused with the reason.
#include "job/spec/elastic.h"

#include <gmock/gmock.h>

#include "job/spec/cluster_spec.h"
#include "tests/job/spec/refusal.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json elastic_spec(int least, int most, int replicas, json config, int slots = 1) {
  return {{"deepspeed", {{"config", std::move(config)}}},
          {"training",
           {{"modelNameOrPath", "/m"}, {"dataPath", "/d"}, {"outputDir", "/o"}, {"maxSteps", 9}}},
          {"workers", {{"replicas", replicas}, {"slotsPerWorker", slots}}},
          {"elastic", {{"minReplicas", least}, {"maxReplicas", most}}}};
}

json batch(int train, int micro) {
  return {{"train_batch_size", train}, {"train_micro_batch_size_per_gpu", micro}};
}

ClusterSpec checked(const json& spec) {
  return check_cluster_spec("j", spec, std::nullopt);
}

TEST(ElasticSizes, ThoseThatKeepTheBatch) {
  const struct {
    int least, most, train, micro, slots;
    std::vector<int> sizes;
  } table[] = {{1, 4, 8, 1, 1, {1, 2, 4}},     {2, 4, 8, 2, 1, {2, 4}},
               {1, 4, 12, 1, 1, {1, 2, 3, 4}}, {1, 8, 48, 2, 4, {1, 2, 3, 6}},
               {3, 5, 60, 1, 1, {3, 4, 5}},    {1, 3, 6, 1, 2, {1, 3}},
               {1, 65'536, 4, 1, 1, {1, 2, 4}}};
  for (const auto& row : table) {
    const json job =
        elastic_spec(row.least, row.most, row.most, batch(row.train, row.micro), row.slots);
    EXPECT_EQ(checked(job).sizes, row.sizes) << row.train << "/" << row.micro;
  }
}

/// Ranks that share rows are one: of 2 ranks each, groups have the batch in whole micro-batches.
TEST(ElasticSizes, GroupsThatShareRowsCountAsOne) {
  json config = batch(4, 1);
  config["sequence_parallel_size"] = 2;
  EXPECT_EQ(checked(elastic_spec(1, 8, 8, config)).sizes, (std::vector<int>{2, 4, 8}));
  EXPECT_EQ(checked(elastic_spec(1, 8, 8, config, 2)).sizes, (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(checked(elastic_spec(1, 8, 8, batch(4, 1))).sizes, (std::vector<int>{1, 2, 4}));
}

TEST(ElasticSizes, TheConfigIsResolvedAtTheLargestThatReplicasAllow) {
  for (const auto& [replicas, accumulation] : {std::pair{4, 2}, {3, 4}, {2, 4}, {1, 8}}) {
    const auto result = checked(elastic_spec(1, 4, replicas, batch(8, 1)));
    EXPECT_TRUE(result.resolution.runnable()) << replicas;
    EXPECT_EQ(result.job.replicas, replicas);
    EXPECT_EQ(result.resolution.config.train_batch_size, 8);
    EXPECT_EQ(result.resolution.config.gradient_accumulation_steps, accumulation) << replicas;
  }
}

TEST(ElasticSizes, TheSolversListWhereElasticityIsEnabled) {
  for (const double version : {0.1, 0.2}) {
    const json section = {{"enabled", true},
                          {"max_train_batch_size", 12},
                          {"micro_batch_sizes", {2}},
                          {"version", version}};
    const auto result = checked(elastic_spec(1, 6, 5, {{"elasticity", section}}));
    EXPECT_THAT(result.sizes, ElementsAre(1, 2, 3, 6)) << version;
    EXPECT_TRUE(result.resolution.runnable());
    EXPECT_EQ(result.resolution.config.train_batch_size, 12);
  }
}

TEST(ElasticSizes, GroupsOfRanksDivideThem) {
  for (const char* key : {"mics_shard_size", "zero_hpz_partition_size"}) {
    json config = batch(12, 1);
    config["zero_optimization"] = {{"stage", 3}, {key, 2}};
    const bool mics = std::string(key) == "mics_shard_size";  // hpZ: 1 rank is one group
    EXPECT_THAT(checked(elastic_spec(1, 4, 4, config)).sizes,
                testing::ElementsAreArray(mics ? std::vector{2, 4} : std::vector{1, 2, 4}))
        << key;
    EXPECT_THAT(checked(elastic_spec(1, 4, 4, config, 2)).sizes, ElementsAre(1, 2, 3)) << key;
    EXPECT_THAT(refusal(mics ? elastic_spec(1, 1, 1, config) : elastic_spec(3, 3, 3, config)),
                HasSubstr(std::string("fits the batch and zero_optimization.") + key + ", 2"));
    config["zero_optimization"]["stage"] = 2;
    EXPECT_THAT(checked(elastic_spec(1, 4, 4, config)).sizes, ElementsAre(1, 2, 3, 4)) << key;
  }
}

TEST(ElasticSizes, WhatWouldChangeTheBatchIsRefused) {
  EXPECT_EQ(refusal(elastic_spec(1, 4, 4, batch(8, 1))), "");
  EXPECT_THAT(refusal(elastic_spec(2, 4, 4, {{"train_micro_batch_size_per_gpu", 3}})),
              HasSubstr("write train_batch_size: 12, the batch of maxReplicas"));
  EXPECT_THAT(refusal(elastic_spec(2, 4, 4, {{"train_batch_size", 8}})),
              HasSubstr("train_micro_batch_size_per_gpu is not a number"));
  json fixed = batch(8, 1);
  fixed["gradient_accumulation_steps"] = 2;
  EXPECT_THAT(refusal(elastic_spec(2, 4, 4, fixed)), HasSubstr("gradient_accumulation_steps is 2"));
  EXPECT_THAT(refusal(elastic_spec(3, 3, 3, batch(8, 1))),
              HasSubstr("no number of workers from 3 to 3 fits the batch: train_batch_size 8"));
  EXPECT_THAT(refusal(elastic_spec(3, 4, 3, batch(8, 1))),
              HasSubstr("the smallest that does is 4"));
  EXPECT_THAT(refusal(elastic_spec(2, 4, 5, batch(8, 1))),
              HasSubstr("5 is not from elastic.minReplicas 2"));
  EXPECT_THAT(refusal(elastic_spec(4, 2, 4, batch(8, 1))),
              HasSubstr("minReplicas 4 is above maxReplicas 2"));
}

TEST(ElasticSizes, WhatCannotChangeItsSizeIsRefused) {
  json job = elastic_spec(2, 4, 4, batch(8, 1));
  job["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  EXPECT_THAT(refusal(job), HasSubstr("partial admission only for batch Jobs"));
  job["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  EXPECT_THAT(refusal(job), HasSubstr("Volcano gives a pod group all its nodes or none"));
  job["runPolicy"] = {{"recoveryDeadlineSeconds", 30}};
  EXPECT_THAT(refusal(job), HasSubstr("60 s is beyond runPolicy.recoveryDeadlineSeconds, 30"));
  job.erase("runPolicy");
  job["elastic"].erase("maxReplicas");
  EXPECT_THAT(refusal(job), HasSubstr("spec.elastic.maxReplicas: a field is missing"));
  job = elastic_spec(2, 4, 4, batch(8, 1));
  job.erase("elastic");
  job["workers"]["minReplicas"] = 2;
  EXPECT_THAT(refusal(job), HasSubstr("spec.elastic: {minReplicas, maxReplicas}"));
  job["workers"].erase("minReplicas");
  job["elasticPolicy"] = {{"minReplicas", 2}};
  EXPECT_THAT(refusal(job), HasSubstr("spec.elastic: {minReplicas, maxReplicas}"));
  job.erase("elasticPolicy");
  EXPECT_THAT(checked(job).sizes, IsEmpty());
  job = elastic_spec(2, 4, 4, batch(8, 1));
  job["launcher"] = "Command";
  job["workers"]["template"]["spec"]["containers"] =
      json::array({{{"name", "worker"}, {"image", "i"}, {"command", {"train"}}}});
  EXPECT_THAT(refusal(job), HasSubstr("your own program"));
}

TEST(ElasticSizes, TheLargestThatIsNotAbove) {
  EXPECT_EQ(largest_size({1, 2, 4}, 3), 2);
  EXPECT_EQ(largest_size({2, 4}, 1), 0);
  EXPECT_EQ(largest_size({}, 9), 0);
}

}  // namespace
}  // namespace dsj::jobspec
