#include "job/report/training_status.h"

#include <gtest/gtest.h>

#include "common/text.h"
#include "job/contract.h"

namespace dsj::report {
namespace {

using nlohmann::json;

const std::string kNow = "2026-01-01T00:00:00Z";

struct TrainingStatusTest : testing::Test {
  TrainingStatus status{4, nullptr};
  void take(const Report& told) { status.take(told, kNow); }
  json training() const { return status_json(status.training()); }
  void two_steps() {
    take(Attempt{.attempt = 1, .world_size = 4});
    take(Resolved{.total_steps = 10});
    take(Step{.step = 1, .loss = 3, .step_seconds = 60});
    take(Step{.step = 2, .loss = 2, .step_seconds = 2});
  }
};

TEST_F(TrainingStatusTest, NothingAtFirst) {
  EXPECT_EQ(training(), json::object());
  EXPECT_TRUE(status.checkpoint().is_null());
  EXPECT_FALSE(status.saved_step());
}

TEST_F(TrainingStatusTest, TheTimeLeftDoesNotCountTheFirstStep) {
  two_steps();
  EXPECT_EQ(status.seconds_left(), 16);
  EXPECT_EQ(training()["estimatedRemainingSeconds"], 16);
  EXPECT_EQ(training()["progressPercentage"], 20);
}

TEST_F(TrainingStatusTest, AnotherAttemptKeepsTheLastLossUntilItsOwn) {
  two_steps();
  take(Attempt{.attempt = 2, .world_size = 2});
  EXPECT_EQ(status.step(), 0);
  EXPECT_EQ(status.world_size(), 2);
  EXPECT_FALSE(status.seconds_left());
  EXPECT_EQ(training()["loss"], "2");
  take(Resumed{.step = 1, .path = "/c/1"});
  EXPECT_EQ(status.step(), 1);
  EXPECT_EQ(training()["step"], 1);
  EXPECT_EQ(status.checkpoint()[kLastRestored],
            json({{"step", 1}, {"path", "/c/1"}, {"time", kNow}}));
}

TEST_F(TrainingStatusTest, StragglersStandThereUntilTheyAreNoneOrAnotherAttemptBegins) {
  for (const Report& ends :
       {Report(Stragglers{}), Report(Attempt{.attempt = 2, .world_size = 4})}) {
    two_steps();
    take(Stragglers{.count = 1, .who = "rank 3 needs 2 s"});
    EXPECT_EQ(training()["stragglers"], "rank 3 needs 2 s");
    take(ends);
    EXPECT_FALSE(training().contains("stragglers"));
  }
}

TEST_F(TrainingStatusTest, ACheckpointKnowsItsWorld) {
  take(Attempt{.attempt = 1, .world_size = 2});
  take(Checkpoint{.step = 5, .path = "/c/5"});
  EXPECT_EQ(status.saved_step(), 5);
  EXPECT_EQ(status.checkpoint()[kLastSaved]["worldSize"], 2);
  const TrainingStatus next(4, status.checkpoint());
  EXPECT_EQ(next.saved_step(), 5) << "an earlier run's";
}

TEST_F(TrainingStatusTest, TheNewestCheckpointIsTheOneBehindTheDamage) {
  take(Attempt{.attempt = 1, .world_size = 4});
  take(Checkpoint{.step = 3, .path = "/c/3"});
  take(Checkpoint{.step = 6, .bytes = 9, .path = "/c/6"});
  take(Attempt{.attempt = 2, .world_size = 4});
  take(Damage{.step = 6, .message = "step-6"});
  take(Resumed{.step = 3, .path = "/c/3"});
  EXPECT_EQ(status.saved_step(), 3);
  EXPECT_EQ(status.checkpoint()[kLastSaved], json({{"step", 3}, {"path", "/c/3"}}));
  take(Attempt{.attempt = 3, .world_size = 4});
  take(Resumed{.step = 1, .path = "/c/1"});
  EXPECT_EQ(status.saved_step(), 3) << "no damage: the user named an older one";
}

TEST_F(TrainingStatusTest, DamageStandsThereWithItsAttemptUntilThereIsMore) {
  take(Attempt{.attempt = 2, .world_size = 4});
  take(Damage{.step = 6, .message = "step-6"});
  take(Resumed{.step = 3, .path = "/c/3"});
  const json damaged = {{"step", 6}, {"message", "step-6"}, {"attempt", 2}, {"time", kNow}};
  EXPECT_EQ(status.checkpoint()[kLastDamaged], damaged);
  TrainingStatus next(4, status.checkpoint());
  next.take(Attempt{.attempt = 3, .world_size = 4}, kNow);
  next.take(Resumed{.step = 9, .path = "/c/9"}, kNow);
  EXPECT_EQ(next.checkpoint()[kLastDamaged], damaged) << "an earlier run's";
  next.take(Damage{.step = 9, .message = "step-9"}, kNow);
  EXPECT_EQ(next.checkpoint()[kLastDamaged]["attempt"], 3);
  EXPECT_EQ(next.checkpoint()[kLastDamaged]["message"], "step-9");
}

TEST_F(TrainingStatusTest, WhatIsToldOfDamageIsBounded) {
  std::string message = "xx";
  while (message.size() < 5000) message += "\xe2\x82\xac";
  take(Damage{.step = 6, .message = message});
  const std::string kept = status.checkpoint()[kLastDamaged]["message"];
  EXPECT_LE(kept.size(), kDamageBytesMax);
  EXPECT_GT(kept.size(), kDamageBytesMax - 4);
  EXPECT_TRUE(message.starts_with(kept));
  EXPECT_EQ(text::invalid_utf8(kept), std::string::npos);
}

TEST_F(TrainingStatusTest, NoTimeIsLeftAfterTheEnd) {
  for (const int64_t code : {int64_t{contract::kExitPreempted}, int64_t{contract::kExitDone}}) {
    two_steps();
    take(End{.exit_code = code});
    EXPECT_EQ(training().contains("estimatedRemainingSeconds"), code == contract::kExitPreempted);
  }
}

TEST_F(TrainingStatusTest, AProgramWithoutATotalHasNoProgress) {
  take(Resolved{});
  take(Step{.step = 3});
  EXPECT_FALSE(training().contains("progressPercentage"));
  EXPECT_EQ(training()["totalSteps"], 0);
  EXPECT_TRUE(training()["loss"].is_null());
}

}  // namespace
}  // namespace dsj::report
