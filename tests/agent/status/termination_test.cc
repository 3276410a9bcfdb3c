#include "agent/status/termination.h"

#include <gtest/gtest.h>

#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;
using nlohmann::json;

Worker worker_with(int exit_code, std::vector<RankState> ranks) {
  Worker worker({.worker = 1}, Time(0));
  worker.exit_code = exit_code;
  worker.exit_reason = "the job ended";
  worker.report.attempt = 3;
  worker.report.ranks = std::move(ranks);
  return worker;
}
json message(const Worker& worker, const Outcome* outcome = nullptr,
             const std::optional<report::Failure>& failure = {}) {
  return json::parse(to_text(termination_of(worker, {4, 5}, outcome, failure)));
}

TEST(Termination, CompletedOnlyWithTheLastStep) {
  const auto done = message(
      worker_with(kExitDone, {{.running = false, .step = 20}, {.running = false, .step = 20}}));
  EXPECT_EQ(done["reason"], kReasonCompleted);
  EXPECT_EQ(done["step"], 20);
  EXPECT_EQ(done["attempt"], 3);
  EXPECT_FALSE(done.contains("rank"));
  EXPECT_EQ(message(worker_with(kExitPreempted, {}))["reason"], kReasonPreempted);
}

TEST(Termination, NamesTheFirstOfItsOwnRanksThatFailedByItself) {
  const auto text = message(worker_with(
      kExitFailed,
      {{.running = false, .exit_code = kExitPeerLost, .exit_order = 2, .step = 7},
       {.running = false, .signal = 11, .exit_order = 1, .step = 8, .last_words = "boom"}}));
  EXPECT_EQ(text["rank"], 5);
  EXPECT_EQ(text["signal"], 11);
  EXPECT_EQ(text["lastWords"], "boom");
  EXPECT_EQ(text["step"], 8);
  const auto killed = message(worker_with(
      kExitFailed, {{.running = false, .signal = 9, .stopped = true, .exit_order = 1}}));
  EXPECT_FALSE(killed.contains("rank")) << "its own agent killed it";
}

TEST(Termination, WorkerZeroTellsOfTheWholeJob) {
  const Outcome outcome{kExitFailed, kReasonBackoffLimitExceeded, "no restart is left"};
  const report::Failure failure{.rank = 9, .exit_code = 1, .last_words = "w"};
  const auto text = message(worker_with(kExitFailed, {}), &outcome, failure);
  EXPECT_EQ(text["reason"], kReasonBackoffLimitExceeded);
  EXPECT_EQ(text["message"], "no restart is left");
  EXPECT_EQ(text["rank"], 9);
  EXPECT_EQ(text["exitCode"], 1);
  EXPECT_EQ(text["lastWords"], "w");
  const Outcome done{kExitDone, kReasonCompleted, "all"};
  EXPECT_FALSE(message(worker_with(kExitDone, {}), &done, failure).contains("rank"))
      << "an attempt that failed before is not how it ended";
}

TEST(Termination, AnErrorBeforeTheStart) {
  const auto told = termination_of(Error{ErrorKind::BadInput, "bad", "here", ""});
  EXPECT_EQ(told.reason, "BadInput");
  EXPECT_EQ(told.message, "here: bad");
  EXPECT_EQ(told.attempt, 0) << "the agent spoke";
}

}  // namespace
}  // namespace dsj::agent
