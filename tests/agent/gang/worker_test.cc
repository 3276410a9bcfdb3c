#include "agent/gang/worker.h"

#include <gtest/gtest.h>

#include <csignal>

#include "job/contract.h"

namespace dsj::agent {
namespace {

template <typename T>
int count(const WorkerCommands& commands) {
  int found = 0;
  for (const auto& command : commands) found += std::holds_alternative<T>(command);
  return found;
}
int signal_in(const WorkerCommands& commands) {
  for (const auto& command : commands) {
    if (const auto* sent = std::get_if<SignalRanks>(&command)) return sent->signal;
  }
  return 0;
}
Heard run(int64_t attempt, Time sent = Time(0)) {
  return {{.order = Order::Run, .attempt = attempt, .world_size = 2}, sent};
}

struct WorkerTest : testing::Test {
  Worker worker{{.slots = 2}, Time(0)};
};

TEST_F(WorkerTest, LaunchesAnAttemptOnce) {
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(3), Time(0))), 1);
  EXPECT_EQ(worker.report.attempt, 3);
  EXPECT_EQ(worker.report.ranks.size(), 2u);
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(3), Time(1))), 0);
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(2), Time(2))), 0) << "an older one comes too late";
}

TEST_F(WorkerTest, LooksAtItsRanksOnceForEachRequest) {
  Heard asked = run(3);
  step(worker, asked, Time(0));
  asked.directive.look = 7;
  EXPECT_EQ(count<TakeLook>(step(worker, asked, Time(10))), 1);
  const Looked looked{7, {RankLook{.known = true, .step = 4}, RankLook{.stopped = true}}};
  EXPECT_EQ(count<SendBeat>(step(worker, looked, Time(10))), 1);
  EXPECT_EQ(worker.report.look, 7);
  EXPECT_EQ(worker.report.looks, looked.ranks);
  EXPECT_EQ(count<TakeLook>(step(worker, asked, Time(20))), 0);
  asked.directive.look = 8;
  EXPECT_EQ(count<TakeLook>(step(worker, asked, Time(30))), 1);
  step(worker, run(3), Time(40));
  EXPECT_EQ(worker.report.look, 0) << "nobody asks any more";
  EXPECT_TRUE(worker.report.looks.empty());
}

TEST_F(WorkerTest, TakesStacksOnceForEachRequest) {
  Heard asked = run(3);
  asked.directive.stacks = 7;
  step(worker, run(3), Time(0));
  EXPECT_EQ(count<TakeStacks>(step(worker, asked, Time(10))), 1);
  EXPECT_EQ(count<TakeStacks>(step(worker, asked, Time(20))), 0) << "although it takes long";
  const StacksTaken taken{7, {"in wait", std::string(5000, 'x')}};
  EXPECT_EQ(count<SendBeat>(step(worker, taken, Time(30))), 1);
  EXPECT_EQ(worker.report.stacks, 7);
  ASSERT_EQ(worker.report.where.size(), 2u);
  EXPECT_EQ(worker.report.where[0], "in wait");
  EXPECT_EQ(worker.report.where[1].size(), kWhereBytesMax);
  EXPECT_EQ(count<TakeStacks>(step(worker, asked, Time(40))), 0);
  asked.directive.stacks = 8;
  EXPECT_EQ(count<TakeStacks>(step(worker, asked, Time(50))), 1);
  step(worker, StacksTaken{8, {"of one rank of two"}}, Time(60));
  EXPECT_EQ(worker.report.stacks, 7) << "of an attempt with other ranks";
  step(worker, run(3), Time(70));
  EXPECT_EQ(worker.report.stacks, 0) << "nobody asks any more";
  EXPECT_TRUE(worker.report.where.empty());
}

TEST_F(WorkerTest, MeasuresItsLinkOnceForEachRound) {
  Heard asked{{.order = Order::Idle, .link = {.round = 4, .address = "a", .port = 1, .key = "k"}},
              Time(0)};
  EXPECT_EQ(count<MeasureLink>(step(worker, asked, Time(0))), 1);
  EXPECT_EQ(count<MeasureLink>(step(worker, asked, Time(10))), 0) << "it is under way";
  EXPECT_EQ(count<SendBeat>(step(worker, LinkMeasured{{3, 7, ""}}, Time(20))), 0) << "overtaken";
  EXPECT_EQ(worker.report.link_rate, LinkRate{});
  const LinkMeasured measured{{4, 1000, std::string(5000, 'x')}};
  EXPECT_EQ(count<SendBeat>(step(worker, measured, Time(30))), 1);
  EXPECT_EQ(worker.report.link_rate.bytes_per_second, 1000);
  EXPECT_EQ(worker.report.link_rate.problem.size(), kLinkTextMax);
  EXPECT_EQ(count<MeasureLink>(step(worker, asked, Time(40))), 0);
  asked.directive.link.round = 5;
  EXPECT_EQ(count<MeasureLink>(step(worker, asked, Time(50))), 1);
  EXPECT_EQ(worker.report.link_rate, LinkRate{}) << "the answer to another round";
  step(worker, LinkMeasured{{5, 1000, ""}}, Time(60));
  asked.directive.link = {};
  asked.directive.slow_link = "it is slow";
  step(worker, asked, Time(70));
  EXPECT_EQ(worker.report.link_rate, LinkRate{}) << "nobody asks any more";
  EXPECT_EQ(worker.slow_link, "it is slow");
  asked.directive.slow_link.clear();
  step(worker, asked, Time(80));
  EXPECT_EQ(worker.slow_link, "");
}

TEST_F(WorkerTest, TakesNoStacksOfAnotherAttemptOrOfNoRank) {
  Heard asked = run(4);
  asked.directive.stacks = 1;
  asked.directive.order = Order::Idle;
  EXPECT_EQ(count<TakeStacks>(step(worker, asked, Time(0))), 0) << "there are no ranks";
  step(worker, run(3), Time(0));
  EXPECT_EQ(count<TakeStacks>(step(worker, asked, Time(10))), 0);
}

TEST_F(WorkerTest, LooksAtNoRanksOfAnotherAttempt) {
  Heard asked = run(3);
  asked.directive.order = Order::Idle;
  asked.directive.look = 1;
  EXPECT_EQ(count<TakeLook>(step(worker, asked, Time(0))), 0) << "there are none";
  step(worker, run(4), Time(0));
  EXPECT_EQ(count<TakeLook>(step(worker, asked, Time(10))), 0);
}

TEST_F(WorkerTest, AStopIsObeyedAtTheLeaseWhenNobodyAnswers) {
  step(worker, StopSignal{}, Time(0));
  EXPECT_EQ(count<ExitAgent>(step(worker, WorkerTick{}, worker.config.lease)), 0);
  step(worker, WorkerTick{}, worker.config.lease + Time(1));
  EXPECT_TRUE(worker.exited);
  EXPECT_EQ(worker.exit_code, contract::kExitPreempted) << "nothing ran, nothing had to be saved";
}

TEST_F(WorkerTest, AStopThatNobodyAnsweredIsNoSavedStep) {
  step(worker, run(3), Time(0));
  step(worker, StopSignal{}, Time(10));
  const Time late = worker.config.lease + Time(20);
  EXPECT_EQ(signal_in(step(worker, WorkerTick{}, late)), SIGKILL);
  for (int rank : {0, 1}) step(worker, RankExited{rank, 0, SIGKILL, ""}, late);
  step(worker, WorkerTick{}, late + Time(10));
  EXPECT_TRUE(worker.exited);
  EXPECT_EQ(worker.exit_code, contract::kExitPeerLost);
}

TEST_F(WorkerTest, ADepartureIsReportedAndEndsWhenTheGangIsIdle) {
  Worker leaver{{.worker = 1, .slots = 2}, Time(0)};
  step(leaver, run(3), Time(0));
  const auto out = step(leaver, DepartSignal{}, Time(1));
  EXPECT_EQ(signal_in(out), 0) << "all ranks save together, when worker 0's agent says so";
  EXPECT_EQ(count<SendBeat>(out), 1);
  EXPECT_TRUE(leaver.report.departing);
  EXPECT_FALSE(leaver.report.stop_requested);
  const Heard preempt{{.order = Order::Preempt, .attempt = 3}, Time(2)};
  EXPECT_EQ(signal_in(step(leaver, preempt, Time(2))), SIGTERM);
  for (int rank : {0, 1}) {
    step(leaver, RankExited{rank, contract::kExitPreempted, 0, ""}, Time(3));
  }
  EXPECT_EQ(count<ExitAgent>(step(leaver, preempt, Time(4))), 0) << "others still save";
  step(leaver, Heard{{.order = Order::Idle, .attempt = 3}, Time(5)}, Time(5));
  EXPECT_TRUE(leaver.exited);
  EXPECT_TRUE(leaver.report.leaving);
  EXPECT_EQ(leaver.exit_code, contract::kExitPreempted);
}

TEST_F(WorkerTest, ADepartureThatNobodyAnswersIsASavedStepIfAllRanksSaved) {
  Worker leaver{{.worker = 1, .slots = 2}, Time(0)};
  step(leaver, run(3), Time(0));
  step(leaver, Heard{{.order = Order::Preempt, .attempt = 3}, Time(2)}, Time(2));
  for (int rank : {0, 1}) {
    step(leaver, RankExited{rank, contract::kExitPreempted, 0, ""}, Time(3));
  }
  step(leaver, DepartSignal{}, Time(4));
  step(leaver, WorkerTick{}, Time(3) + leaver.config.lease);
  EXPECT_TRUE(leaver.exited);
  EXPECT_EQ(leaver.exit_code, contract::kExitPreempted);
}

TEST_F(WorkerTest, WorkerZeroStaysUntilItsSessionIsOver) {
  step(worker, DepartSignal{}, Time(1));
  step(worker, Heard{{.order = Order::Idle}, Time(2)}, Time(2));
  EXPECT_FALSE(worker.exited);
  step(worker, Heard{{.order = Order::Finish, .exit_code = contract::kExitPreempted}, Time(3)},
       Time(3));
  EXPECT_TRUE(worker.exited);
}

TEST_F(WorkerTest, FencedAttemptIsNeverLaunched) {
  const auto out = step(worker, Heard{{.order = Order::Idle, .attempt = 3}, Time(0)}, Time(0));
  EXPECT_EQ(count<SendBeat>(out), 1);
  EXPECT_EQ(worker.report.fence, 3);
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(3), Time(1))), 0);
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(4), Time(2))), 1);
}

TEST_F(WorkerTest, NewerAttemptWaitsUntilTheOldRanksAreGone) {
  step(worker, run(1), Time(0));
  auto out = step(worker, run(2), Time(1));
  EXPECT_EQ(signal_in(out), SIGKILL);
  EXPECT_EQ(count<LaunchRanks>(out), 0);
  step(worker, RankExited{0, 0, SIGKILL, ""}, Time(2));
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(2), Time(3))), 0);
  step(worker, RankExited{1, 0, SIGKILL, ""}, Time(4));
  EXPECT_TRUE(worker.report.ranks[1].stopped);
  EXPECT_EQ(count<LaunchRanks>(step(worker, run(2), Time(5))), 1);
}

TEST_F(WorkerTest, PreemptTermsOnceAndFencesWhatWasNotStarted) {
  step(worker, run(1), Time(0));
  const Heard preempt{{.order = Order::Preempt, .attempt = 1}, Time(1)};
  EXPECT_EQ(signal_in(step(worker, preempt, Time(1))), SIGTERM);
  EXPECT_EQ(signal_in(step(worker, preempt, Time(2))), 0);

  Worker other({.slots = 2}, Time(0));
  EXPECT_EQ(signal_in(step(other, preempt, Time(1))), 0);
  EXPECT_EQ(other.report.fence, 1);
}

TEST_F(WorkerTest, LeaseKillsAndFences) {
  step(worker, run(1, Time(0)), Time(0));
  EXPECT_EQ(signal_in(step(worker, WorkerTick{}, Time(4000))), 0);
  EXPECT_EQ(signal_in(step(worker, WorkerTick{}, Time(4001))), SIGKILL);
  EXPECT_EQ(worker.report.fence, 1);
  EXPECT_EQ(signal_in(step(worker, WorkerTick{}, Time(4100))), 0) << "once is enough";
}

TEST_F(WorkerTest, LeaseCountsFromTheSendingOfTheBeat) {
  step(worker, run(1, Time(0)), Time(3000));
  EXPECT_EQ(signal_in(step(worker, WorkerTick{}, Time(4001))), SIGKILL);
}

TEST_F(WorkerTest, ExitsAreReportedInOrderWithTheFirstError) {
  step(worker, run(1), Time(0));
  step(worker, RankError{1, "DataError", "row 7"}, Time(1));
  step(worker, RankError{1, "PeerLost", "later"}, Time(1));
  EXPECT_EQ(count<SendBeat>(step(worker, RankExited{1, 2, 0, "tail"}, Time(2))), 1);
  step(worker, RankExited{0, 86, 0, std::string(9000, 'x')}, Time(3));
  EXPECT_EQ(worker.report.ranks[1].exit_order, 1);
  EXPECT_EQ(worker.report.ranks[1].reason, "DataError");
  EXPECT_EQ(worker.report.ranks[1].last_words, "tail");
  EXPECT_EQ(worker.report.ranks[0].exit_order, 2);
  EXPECT_EQ(worker.report.ranks[0].last_words.size(), kLastWordsBytesMax);
}

TEST_F(WorkerTest, FinishKillsWhatRunsThenExitsWithTheJobsCode) {
  step(worker, run(1), Time(0));
  const Heard finish{{.order = Order::Finish, .exit_code = 2}, Time(1)};
  auto out = step(worker, finish, Time(1));
  EXPECT_EQ(signal_in(out), SIGKILL);
  EXPECT_EQ(count<ExitAgent>(out), 0);
  step(worker, RankExited{0, 0, SIGKILL, ""}, Time(2));
  out = step(worker, RankExited{1, 0, SIGKILL, ""}, Time(2));
  ASSERT_EQ(count<ExitAgent>(out), 1);
  EXPECT_EQ(worker.exit_code, 2);
  EXPECT_TRUE(worker.report.leaving);
  EXPECT_TRUE(step(worker, run(2), Time(3)).empty());
}

TEST_F(WorkerTest, GivesUpWhenNobodyAnswers) {
  EXPECT_EQ(count<ExitAgent>(step(worker, WorkerTick{}, Time(119'000))), 0);
  EXPECT_EQ(count<ExitAgent>(step(worker, WorkerTick{}, Time(120'001))), 1);
  EXPECT_EQ(worker.exit_code, contract::kExitPeerLost);
}

TEST_F(WorkerTest, StopIsReportedNotActedOn) {
  step(worker, run(1), Time(0));
  const auto out = step(worker, StopSignal{}, Time(1));
  EXPECT_EQ(signal_in(out), 0) << "all ranks stop together, when worker 0's agent says so";
  EXPECT_EQ(count<SendBeat>(out), 1);
  EXPECT_TRUE(worker.report.stop_requested);
}

TEST(WorkerOfAUsersProgram, ItsRanksAreMarkedButForTheAgentsOwnCodes) {
  Worker worker({.slots = 2, .own_codes = true}, Time(0));
  step(worker, run(1), Time(0));
  EXPECT_TRUE(worker.report.ranks[0].own_codes);
  step(worker, RankExited{0, 0, 0, ""}, Time(1));
  EXPECT_FALSE(worker.report.ranks[0].asked);
  step(worker, Heard{{.order = Order::Preempt, .attempt = 1}, Time(2)}, Time(2));
  step(worker, RankExited{1, 0, 0, ""}, Time(3));
  EXPECT_TRUE(worker.report.ranks[1].asked);
  step(worker, run(2), Time(4));
  step(worker, RankExited{0, contract::kExitEnvironment, 0, "", false}, Time(5));
  EXPECT_FALSE(worker.report.ranks[0].own_codes) << "it was never started";
}

}  // namespace
}  // namespace dsj::agent
