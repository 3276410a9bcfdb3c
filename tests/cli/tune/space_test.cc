#include "cli/tune/space.h"

#include <gtest/gtest.h>

#include <set>

namespace dsj::tune {
namespace {

using nlohmann::json;
using Sizes = std::vector<int64_t>;

TEST(TuneSpace, NamesEqualDeepSpeeds) {
  Candidate candidate{.stage = 2, .micro_batch = 8, .accumulation = 3};
  EXPECT_EQ(name_of(candidate), "z2_gas3_tmbspg8");
  candidate.offload = true;
  candidate.settings = {{"overlap_comm", true}, {"reduce_bucket_size", 50'000'000}};
  EXPECT_EQ(name_of(candidate), "z2_gas3_tmbspg8_offload_ocT_rbs5.0e+07");
  candidate.given = true;
  EXPECT_EQ(name_of(candidate), "as_given");
}

TEST(TuneSpace, ACandidateChangesTheFileOnlyWhereItDiffers) {
  const json base = {{"train_batch_size", 64},
                     {"bf16", {{"enabled", true}}},
                     {"zero_optimization", {{"stage", 2}, {"overlap_comm", true}}}};
  const Candidate candidate{
      .stage = 3, .micro_batch = 4, .accumulation = 2, .offload = true, .settings = {{"x", 1}}};
  EXPECT_EQ(ds_config_of(base, candidate), json({{"train_micro_batch_size_per_gpu", 4},
                                                 {"gradient_accumulation_steps", 2},
                                                 {"bf16", {{"enabled", true}}},
                                                 {"zero_optimization",
                                                  {{"stage", 3},
                                                   {"overlap_comm", true},
                                                   {"offload_optimizer", {{"device", "cpu"}}},
                                                   {"x", 1}}}}));
  EXPECT_EQ(ds_config_of(base, {.given = true, .stage = 3}), base);
  EXPECT_EQ(ds_config_of(json::object(), {.stage = 1})["zero_optimization"]["stage"], 1);
}

TEST(TuneSpace, TheBatchFollowsItsRule) {
  const BatchRule rule{.world = 2, .micro_batch = 4, .accumulation = 3};
  EXPECT_EQ(accumulation_of(8, rule), 3) << "the file's, as in DeepSpeed";
  BatchRule limited = rule;
  limited.most = 40;
  EXPECT_EQ(accumulation_of(8, limited), 2);
  EXPECT_EQ(accumulation_of(32, limited), std::nullopt);
  limited = rule;
  limited.least = 100;
  EXPECT_EQ(accumulation_of(8, limited), 7);
  limited.most = 101;
  EXPECT_EQ(accumulation_of(8, limited), std::nullopt);
  BatchRule kept = rule;
  kept.keep = true;
  EXPECT_EQ(accumulation_of(6, kept), 2);
  EXPECT_EQ(accumulation_of(5, kept), std::nullopt);
}

TEST(TuneSpace, TheLadderDoublesFromTheFilesOwnSize) {
  const BatchRule rule{.world = 2, .micro_batch = 4, .accumulation = 3};
  EXPECT_EQ(ladder(rule, 3, 1, 1024), (Sizes{2, 4, 8, 16, 32}));
  EXPECT_EQ(ladder(rule, 3, 4, 20), (Sizes{4, 8, 16}));
  EXPECT_EQ(ladder(rule, 60, 1, 16), (Sizes{2, 4, 8, 16}));
  EXPECT_EQ(ladder(rule, 1, 100, 1000), (Sizes{100, 200}));
  BatchRule kept = rule;
  kept.keep = true;
  EXPECT_EQ(ladder(kept, 3, 1, 1024), (Sizes{2, 3, 4, 6, 12}));
  BatchRule one{.world = 1, .micro_batch = 1};
  EXPECT_EQ(ladder(one, 2, 1, 1024), (Sizes{1, 2, 4}));
}

TEST(TuneSpace, CountsTheSizesThatFit) {
  const Sizes sizes = {1, 2, 4, 8, 16};
  int64_t calls = 0;
  for (const int64_t limit : {0, 1, 7, 16, 99}) {
    const auto fits = [&](int64_t size) { return ++calls, size <= limit; };
    size_t expected = 0;
    while (expected < sizes.size() && sizes[expected] <= limit) ++expected;
    EXPECT_EQ(count_that_fit(sizes, fits), expected) << limit;
  }
  EXPECT_LE(calls, 15);
}

TEST(TuneSpace, OnlyKeysWithAnEffectAreVaried) {
  EXPECT_EQ(settings_of(0, 1'000'000'000'000).size(), 1u);
  EXPECT_EQ(settings_of(0, 10)[0], json::object());
  const auto small = settings_of(2, 1'000'000), large = settings_of(2, int64_t{1} << 40);
  EXPECT_GT(small.size(), 1u) << "overlap_comm acts";
  EXPECT_EQ(large.size() % small.size(), 0u);
  EXPECT_GT(large.size(), small.size()) << "a bucket larger than the model is one bucket";
  std::set<std::string> names;
  for (const json& one : large) {
    EXPECT_FALSE(one.contains("contiguous_gradients")) << "it changes nothing here";
    names.insert(name_of({.settings = one}));
  }
  EXPECT_EQ(names.size(), large.size());
}

}  // namespace
}  // namespace dsj::tune
