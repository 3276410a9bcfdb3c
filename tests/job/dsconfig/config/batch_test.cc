#include "job/dsconfig/config/batch.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/job/dsconfig/said.h"

namespace dsj::dsconfig {
namespace {

constexpr int64_t kNone = 0;

BatchGiven given(int64_t train, int64_t micro, int64_t accumulation, int64_t world) {
  const auto value = [](int64_t number, const char* from) {
    return number == kNone ? BatchValue{} : BatchValue{number, from};
  };
  return {value(train, "ds_config"), value(micro, "training.perDeviceTrainBatchSize"),
          value(accumulation, "ds_config"), world};
}

struct Holds {
  int64_t train, micro, accumulation, world;
  int64_t want_train, want_micro, want_accumulation;
};

TEST(BatchTest, TheTriangleHolds) {
  for (const Holds& c : {
           Holds{32, 16, 1, 2, 32, 16, 1},  // all three
           Holds{32, 8, 2, 2, 32, 8, 2},
           Holds{32, 4, kNone, 2, 32, 4, 4},       // accumulation from the others
           Holds{32, kNone, 4, 2, 32, 4, 4},       // micro from the others
           Holds{kNone, 4, 4, 2, 32, 4, 4},        // train from the others
           Holds{32, kNone, kNone, 2, 32, 16, 1},  // train alone
           Holds{kNone, 4, kNone, 2, 8, 4, 1},     // micro alone
           Holds{1, 1, 1, 1, 1, 1, 1},
           Holds{kNone, 1, kNone, 1000, 1000, 1, 1},
       }) {
    const BatchAnswer answer = solve_batch(given(c.train, c.micro, c.accumulation, c.world));
    ASSERT_TRUE(answer.triple) << answer.problem;
    EXPECT_EQ(answer.triple->train, c.want_train);
    EXPECT_EQ(answer.triple->micro, c.want_micro);
    EXPECT_EQ(answer.triple->accumulation, c.want_accumulation);
  }
}

struct Breaks {
  int64_t train, micro, accumulation, world;
  const char* says;
  const char* hint;
};

TEST(BatchTest, TheNumbersWhoSetThemAndWhatHolds) {
  for (const Breaks& c : {
           Breaks{33, 17, 2, 2, "33 is not 68 = 17 x 2 x 2", "68 = 17 x 2 x 2"},
           Breaks{32, 18, 1, 2, "32 is not 36 = 18 x 1 x 2", "32 = 16 x 1 x 2"},
           Breaks{32, 5, kNone, 2, "30 = 5 x 3 x 2, is not 32", "32 = 4 x 4 x 2"},
           Breaks{2, 4, kNone, 1, "do not divide", "4 = 4 x 1 x 1"},
           Breaks{33, kNone, kNone, 2, "do not divide", "32 = 16 x 1 x 2"},
           Breaks{1, kNone, kNone, 2, "do not divide", "2 = 1 x 1 x 2"},
           Breaks{kNone, kNone, 4, 2, "needs to be given", "perDeviceTrainBatchSize"},
           Breaks{kNone, kNone, kNone, 1, "train_batch_size not given", "add"},
           Breaks{kNone, INT64_MAX, 2, 2, "product is too large", ""},
       }) {
    const BatchAnswer answer = solve_batch(given(c.train, c.micro, c.accumulation, c.world));
    EXPECT_FALSE(answer.triple);
    EXPECT_NE(answer.problem.find(c.says), std::string::npos) << answer.problem;
    EXPECT_NE(answer.hint.find(c.hint), std::string::npos) << answer.hint;
  }
  const BatchAnswer answer = solve_batch(given(33, 17, 2, 2));
  EXPECT_NE(answer.problem.find("train_batch_size 33 (ds_config)"), std::string::npos);
  EXPECT_NE(
      answer.problem.find("train_micro_batch_size_per_gpu 17 (training.perDeviceTrainBatchSize)"),
      std::string::npos);
  EXPECT_NE(answer.problem.find("world size 2"), std::string::npos);
}

/// Every answer keeps what was given and holds; every refusal is one that DeepSpeed's rule makes.
TEST(BatchTest, AllSmallCases) {
  int held = 0, refused = 0;
  for (int64_t world = 1; world <= 4; ++world)
    for (int64_t train = 0; train <= 16; ++train)
      for (int64_t micro = 0; micro <= 9; ++micro)
        for (int64_t accumulation = 0; accumulation <= 9; ++accumulation) {
          const BatchAnswer answer = solve_batch(given(train, micro, accumulation, world));
          bool expected = train > 0 || micro > 0;
          if (train > 0 && micro > 0 && accumulation > 0)
            expected = train == micro * accumulation * world;
          else if (train > 0 && micro > 0)
            expected = train % (micro * world) == 0;
          else if (train > 0)
            expected = train % (std::max<int64_t>(accumulation, 1) * world) == 0;
          ASSERT_EQ(answer.triple.has_value(), expected)
              << train << " " << micro << " " << accumulation << " " << world;
          ++(expected ? held : refused);
          if (!expected) {
            EXPECT_FALSE(answer.problem.empty());
            EXPECT_FALSE(answer.hint.empty());
            continue;
          }
          const BatchTriple& t = *answer.triple;
          EXPECT_EQ(t.train, t.micro * t.accumulation * world);
          EXPECT_TRUE((train == 0 || t.train == train) && (micro == 0 || t.micro == micro) &&
                      (accumulation == 0 || t.accumulation == accumulation));
        }
  EXPECT_GT(held, 400);
  EXPECT_GT(refused, 1000);
}

/// Trainer writes per_device_train_batch_size and gradient_accumulation_steps into "auto", and refuses a
/// literal train_batch_size that is not their product with the world size. Drawn, against that rule.
TEST(BatchTest, ALiteralBatchIsTrainersProduct) {
  std::mt19937 random(16);
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(1, most)(random);
  };
  int held = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    TrainingArgs args;
    if (draw(2) == 1) args.per_device_train_batch_size = draw(8);
    if (draw(2) == 1) args.gradient_accumulation_steps = draw(3);
    const int64_t world = draw(2), train = 8 * draw(4);
    const int64_t product = args.per_device_train_batch_size.value_or(8) *
                            args.gradient_accumulation_steps.value_or(1) * world;
    const Resolution r = resolve({{"train_batch_size", train},
                                  {"train_micro_batch_size_per_gpu", "auto"},
                                  {"gradient_accumulation_steps", "auto"}},
                                 args, {.world_size = static_cast<int>(world)});
    EXPECT_EQ(r.ok(), train == product) << train << " " << product << " " << said(r);
    ++(r.ok() ? held : refused);
  }
  EXPECT_GT(held, 20);
  EXPECT_GT(refused, 20);
  EXPECT_TRUE(resolve_alone({{"train_batch_size", 16},
                             {"train_micro_batch_size_per_gpu", "auto"},
                             {"gradient_accumulation_steps", "auto"}})
                  .ok())
      << "without a job nothing contradicts it";
}

}  // namespace
}  // namespace dsj::dsconfig
