#include "job/report/step_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace dsj::report {
namespace {

TEST(StepLine, WhatIsWrittenIsRead) {
  const StepLine line{.step = 42,
                      .total = 2000,
                      .loss = 1.9312,
                      .lr = 9.8e-7,
                      .grad_norm = 0.92,
                      .tokens_per_second = 312};
  const std::string text = step_line(line);
  EXPECT_EQ(text, "step 42/2000 loss 1.9312 lr 9.8e-07 grad_norm 0.92 312 tok/s");
  const auto read = find_step_line("2026-01-01 12:00:00 info [worker 0] " + text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->step, 42);
  EXPECT_EQ(read->total, 2000);
  EXPECT_EQ(read->loss, 1.9312);
  EXPECT_EQ(read->lr, 9.8e-7);
  EXPECT_EQ(read->grad_norm, 0.92);
  EXPECT_EQ(read->tokens_per_second, 312);
}

TEST(StepLine, PartsMayBeMissingAndNumbersInfinite) {
  const auto read = find_step_line(
      step_line({.step = 3, .loss = std::numeric_limits<double>::infinity(), .lr = 0.5}));
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->total || read->grad_norm);
  EXPECT_EQ(read->loss, std::numeric_limits<double>::infinity());
  EXPECT_EQ(read->lr, 0.5);
}

TEST(StepLine, ASkippedStepNamesTheGradient) {
  const double nan = -std::numeric_limits<double>::quiet_NaN();
  const std::string text =
      step_line({.step = 2, .total = 6, .loss = nan, .lr = 1e-4, .skipped_for = "lm_head.weight"});
  EXPECT_EQ(text,
            "step 2/6 loss nan lr 0.0001 skipped: the gradient of lm_head.weight is not finite");
  const auto read = find_step_line("[worker 0] " + text + ", 0:07 left");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->total, 6);
  EXPECT_TRUE(std::isnan(*read->loss));
  EXPECT_EQ(read->lr, 1e-4);
  EXPECT_EQ(read->skipped_for, "lm_head.weight");
}

TEST(StepLine, OtherLinesAreNone) {
  for (const char* text :
       {"", "step", "step 3", "step x loss 1", "step 3 of the plan", "resumed step 3 from /o",
        "step 3 loss", "step 0 loss 1", "step 3/x loss 1", "[rank 0] step 3 loss 1 lr 2"})
    EXPECT_FALSE(find_step_line(text)) << text;
}

TEST(StepLine, OfALogWithWhatCameBefore) {
  LoggedSteps steps;
  EXPECT_FALSE(steps.take(Resolved{.total_steps = 50}));
  EXPECT_FALSE(steps.take(Step{.step = 9, .loss = 5, .tokens_per_second = 300}));
  const auto line = steps.take(Log{.step = 10, .loss = 4.0, .grad_norm = 0.5, .lr = 1e-5});
  ASSERT_TRUE(line);
  EXPECT_EQ(step_line(*line), "step 10/50 loss 4.0000 lr 1e-05 grad_norm 0.5 300 tok/s");
  EXPECT_FALSE(steps.take(Step{.step = 11, .skipped = true, .bad_gradient = "w"}));
  EXPECT_EQ(steps.take(Log{.step = 11})->skipped_for, "w");
  EXPECT_FALSE(steps.take(Step{.step = 12, .skipped = false}));
  EXPECT_FALSE(steps.take(Log{.step = 12})->skipped_for) << "it is of the last step alone";
}

}  // namespace
}  // namespace dsj::report
