#include "cli/run/run_status.h"

#include <gtest/gtest.h>

#include "job/contract.h"

namespace dsj::cli {
namespace {

using nlohmann::json;

const char* kThen = "2026-01-01T00:00:00Z";
const char* kNow = "2026-01-01T00:01:00Z";

json condition(const RunStatus& status, const std::string& type) {
  for (const auto& entry : status.object()["conditions"]) {
    if (entry["type"] == type) return entry;
  }
  return nullptr;
}
report::Step step(int64_t number, double seconds = 2.0) {
  return {.step = number,
          .loss = 1.5,
          .lr = 1e-6,
          .grad_norm = 0.5,
          .loss_scale = 1,
          .tokens_per_second = 10,
          .step_seconds = seconds};
}

struct RunStatusTest : testing::Test {
  RunStatus status{nullptr, 4, 2, kThen};
  void start(int64_t attempt) {
    status.take(report::Attempt{.attempt = attempt, .world_size = 4}, kThen);
  }
};

TEST_F(RunStatusTest, BeginsPendingAndAccepted) {
  EXPECT_EQ(status.object()["phase"], "Pending");
  EXPECT_EQ(status.object()["startTime"], kThen);
  EXPECT_EQ(condition(status, "Accepted")["status"], "True");
  EXPECT_EQ(status.object()["workers"], "0/2");
}

TEST_F(RunStatusTest, StepsShowProgressAndRemainingTime) {
  start(1);
  status.take(report::Resolved{.config = {{"x", 1}}, .total_steps = 100}, kThen);
  status.take(step(1, 60.0), kThen);
  EXPECT_FALSE(status.seconds_left()) << "the first step pays for the set-up";
  status.take(step(2), kNow);
  status.take(step(3), kNow);
  const json& training = status.object()["training"];
  EXPECT_EQ(training["attempt"], 1);
  EXPECT_EQ(training["step"], 3);
  EXPECT_EQ(training["totalSteps"], 100);
  EXPECT_EQ(training["progressPercentage"], 3);
  EXPECT_EQ(training["loss"], "1.5");
  EXPECT_EQ(training["learningRate"], "1e-06");
  EXPECT_EQ(training["estimatedRemainingSeconds"], 194);
  EXPECT_EQ(training["resolvedConfig"]["x"], 1);
  EXPECT_EQ(training["lastUpdatedTime"], kNow);
  EXPECT_EQ(status.object()["workers"], "2/2");
}

TEST_F(RunStatusTest, ALossThatIsNotFiniteIsTextAndAnUnknownOneIsNull) {
  start(1);
  report::Step told = step(1);
  told.loss.reset();
  status.take(told, kNow);
  EXPECT_TRUE(status.object()["training"]["loss"].is_null());
  told.loss = NAN;
  told.skipped = true;
  told.bad_gradient = "lm_head.weight";
  status.take(told, kNow);
  EXPECT_EQ(status.object()["training"]["loss"], "NaN");
  EXPECT_EQ(status.object()["training"]["badGradient"], "lm_head.weight");
  EXPECT_EQ(status.object()["training"]["skippedSteps"], 1);
  status.take(step(2), kNow);
  EXPECT_FALSE(status.object()["training"].contains("badGradient"));
  EXPECT_EQ(status.object()["training"]["skippedSteps"], 1);
  status.take(report::CutRows{.rows = 9, .cut = 3, .tokens = 40, .without_target = 1}, kNow);
  EXPECT_EQ(status.object()["training"]["cutRows"], 3);
  start(2);
  EXPECT_FALSE(status.object()["training"].contains("skippedSteps")) << "of the attempt";
}

TEST_F(RunStatusTest, OnlyTheLastTenFailuresAreKept) {
  start(1);
  for (int i = 1; i <= 12; ++i) {
    status.take(report::Failure{.attempt = i,
                                .worker = 1,
                                .rank = 3,
                                .signal = 9,
                                .step = 7,
                                .reason = "Killed",
                                .message = "m",
                                .last_words = "w",
                                .restarts_used = 1,
                                .restarts_total = i,
                                .restart_limit = 3,
                                .restart = true},
                kNow);
  }
  EXPECT_EQ(status.object()["phase"], "Restarting");
  EXPECT_EQ(condition(status, "Running")["status"], "False");
  EXPECT_EQ(condition(status, "Restarting")["status"], "True");
  const json& history = status.object()["failureHistory"];
  ASSERT_EQ(history.size(), 10u);
  EXPECT_EQ(history[0]["attempt"], 3);
  EXPECT_EQ(history[9]["signal"], 9);
  EXPECT_FALSE(history[9].contains("exitCode"));
  EXPECT_EQ(status.object()["lastFailure"], history[9]);
  EXPECT_EQ(status.object()["restarts"]["total"], 12);
  start(2);
  EXPECT_EQ(status.object()["phase"], "Running");
  EXPECT_EQ(condition(status, "Restarting")["status"], "False");
}

TEST_F(RunStatusTest, TheLastReportSetsThePhase) {
  const struct {
    int code;
    const char* phase;
    const char* type;
  } rows[] = {{contract::kExitDone, "Complete", "Complete"},
              {contract::kExitFailed, "Failed", "Failed"},
              {contract::kExitBadInput, "Failed", "Failed"},
              {contract::kExitNotFinite, "Failed", "Failed"},
              {contract::kExitPreempted, "Interrupted", "Interrupted"}};
  for (const auto& row : rows) {
    RunStatus one(nullptr, 1, 1, kThen);
    one.take(report::Attempt{.attempt = 1, .world_size = 1}, kThen);
    one.take(report::End{.exit_code = row.code, .reason = "R", .message = "M"}, kNow);
    EXPECT_EQ(one.object()["phase"], row.phase);
    EXPECT_EQ(condition(one, row.type)["status"], "True");
    EXPECT_EQ(condition(one, row.type)["reason"], "R");
    EXPECT_EQ(condition(one, "Running")["status"], "False");
    EXPECT_EQ(condition(one, "Running")["lastTransitionTime"], kNow);
    EXPECT_EQ(one.object().contains("completionTime"), row.code != contract::kExitPreempted);
  }
}

TEST_F(RunStatusTest, NextRunKeepsCheckpointAttemptAndHistoryThroughTheFile) {
  start(3);
  status.take(
      report::Checkpoint{
          .step = 50, .bytes = 1234, .seconds = 0.25, .path = "OUT/checkpoints/step-50"},
      kNow);
  status.take(report::Failure{.attempt = 3,
                              .rank = 0,
                              .exit_code = 1,
                              .reason = "RankFailed",
                              .message = "line one\nline two: \"quoted\""},
              kNow);
  const json read = status_from_text(status_to_text(status.object()), "status.yaml");
  EXPECT_EQ(read, status.object()) << "what is written reads back the same";
  RunStatus next(read, 4, 2, "2026-01-02T00:00:00Z");
  EXPECT_EQ(next.attempt(), 3);
  EXPECT_EQ(next.saved_step(), 50);
  EXPECT_EQ(next.object()["startTime"], kThen);
  EXPECT_EQ(next.object()["checkpoint"]["lastSaved"]["sizeBytes"], 1234);
  EXPECT_EQ(next.object()["failureHistory"].size(), 1u);
  EXPECT_EQ(next.object()["phase"], "Pending");
}

TEST_F(RunStatusTest, InvalidFilesAreIgnored) {
  EXPECT_TRUE(status_from_text("a: [", "status.yaml").is_null());
  EXPECT_TRUE(status_from_text("- 1", "status.yaml").is_null());
  EXPECT_NO_THROW(RunStatus(json{{"checkpoint", 5}, {"attempt", "x"}}, 1, 1, kNow));
}

}  // namespace
}  // namespace dsj::cli
