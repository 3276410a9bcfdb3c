#include "cli/run/run_sentences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dsj::cli {
namespace {

struct RunSentencesTest : testing::Test {
  RunStatus status{nullptr, 2, 1, "2026-01-01T00:00:00Z"};
  /// The message, with "! " before one for stderr; empty if there is none.
  std::string said(const report::Report& told) {
    status.take(told, "2026-01-01T00:00:00Z");
    const auto sentence = sentence_of(told, status, "/o");
    return sentence ? (sentence->is_problem ? "! " : "") + sentence->text : "";
  }
};

TEST_F(RunSentencesTest, EveryReportExceptProgressHasAMessage) {
  EXPECT_EQ(said(report::Attempt{.attempt = 2, .world_size = 4}), "attempt 2: 4 ranks");
  EXPECT_EQ(said(report::Resumed{.step = 5, .path = "/c/5"}), "resumed from step 5 (/c/5)");
  EXPECT_EQ(said(report::Damage{.step = 6, .message = "step-6"}), "! warning: step-6");
  EXPECT_EQ(said(report::Checkpoint{.step = 7, .path = "/c/7"}), "saved step 7 (/c/7)");
  EXPECT_EQ(said(report::Checkpoint{.step = 7, .path = "/c/7", .stall_seconds = 0.0123}),
            "saved step 7 (/c/7), the steps waited 12 ms");
  EXPECT_EQ(said(report::Eval{.step = 7, .loss = 1.23456, .rows = 9}),
            "step 7 eval_loss 1.2346 (9 rows)");
  EXPECT_EQ(said(report::Eval{.step = 7, .loss = NAN}), "step 7 eval_loss nan (0 rows)");
  EXPECT_EQ(said(report::Eval{.step = 7, .rows = 4, .rows_without_target = 4}),
            "step 7 eval_loss unknown: no row has a target (4 rows)");
  EXPECT_EQ(said(report::Eval{.step = 7, .loss = 1, .rows = 4, .rows_without_target = 3}),
            "step 7 eval_loss 1.0000 (4 rows, 3 without a target)");
  EXPECT_EQ(said(report::Step{.step = 8, .skipped = true, .bad_gradient = "lm_head.weight"}),
            "! warning: step 8 was skipped: the gradient of lm_head.weight is not finite");
  EXPECT_EQ(said(report::Note{"two\nlines\n\n"}), "two\nlines");
  EXPECT_EQ(said(report::Exported{"/o/model"}), "model written to /o/model");
  EXPECT_EQ(said(report::Stragglers{.count = 1, .who = "rank 1 needs 2 s"}),
            "! slow: rank 1 needs 2 s");
  EXPECT_EQ(said(report::Stragglers{}), "! no rank delays the others any more");
  EXPECT_EQ(said(report::Warning{.rank = 1, .message = "w"}), "! warning: rank 1: w");
  for (const report::Report& told :
       {report::Report(report::Step{.step = 1}), report::Report(report::Log{.step = 1}),
        report::Report(report::Resolved{}), report::Report(report::CutRows{.cut = 1}),
        report::Report(report::Memory{}), report::Report(report::End{})}) {
    EXPECT_EQ(said(told), "");
  }
}

TEST_F(RunSentencesTest, AFailureSaysWhatHappensNext) {
  report::Failure failure{.attempt = 1, .step = 6, .message = "it broke"};
  EXPECT_EQ(said(failure), "! attempt 1 failed after step 6: it broke");
  failure = {.attempt = 1,
             .rank = 3,
             .signal = 9,
             .step = 6,
             .message = "rank 3 died",
             .last_words = "a\nb",
             .pause_ms = 500,
             .restarts_used = 1,
             .restart_limit = 6,
             .restart = true};
  const std::string text =
      "! attempt 1 failed after step 6: rank 3 died; if nobody killed it, the kernel did because "
      "memory ran out\n  log: /o/logs/rank-3.log\n  | a\n  | b\nrestart 1 of 6 in 500 ms, ";
  EXPECT_EQ(said(failure), text + "from the start");
  said(report::Checkpoint{.step = 5, .path = "/c/5"});
  EXPECT_EQ(said(failure), text + "from the checkpoint of step 5");
  failure.pause_ms = 0;
  EXPECT_THAT(said(failure), testing::HasSubstr("\nrestart 1 of 6 at once, from the checkpoint"));
}

TEST_F(RunSentencesTest, ARankThatHungIsNotReportedAsOutOfMemory) {
  const report::Failure failure{.attempt = 1,
                                .rank = 3,
                                .signal = 9,
                                .step = 6,
                                .reason = "HangDetected",
                                .message = "rank 3 did not arrive"};
  EXPECT_EQ(said(failure),
            "! attempt 1 failed after step 6: rank 3 did not arrive\n  log: /o/logs/rank-3.log");
}

}  // namespace
}  // namespace dsj::cli
