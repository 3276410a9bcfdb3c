// Worker 0's decisions, one story a test. `Gang` plays the workers by hand.
#include "agent/gang/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <random>

#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;
using std::chrono::seconds;

struct Gang {
  explicit Gang(SessionConfig config, int slots = 2) : session(config, Time(0)) {
    for (int w = 0; w < config.workers; ++w) {
      reports.push_back({.worker = w, .slots = slots});
    }
  }
  Commands at(const Event& event) {
    auto out = step(session, event, now);
    commands.insert(commands.end(), out.begin(), out.end());
    return out;
  }
  void beat(int worker) {
    ++reports[worker].sequence;
    at(Beat{reports[worker]});
  }
  void all_beat() {
    for (size_t w = 0; w < reports.size(); ++w) beat(static_cast<int>(w));
  }
  /// Everybody joins, the attempt is published, everybody starts its ranks.
  void start() {
    all_beat();
    at(Published{session.publishing, "127.0.0.1", 4000});
    for (auto& report : reports) {
      report.attempt = session.attempt;
      report.ranks.assign(report.slots, RankState{});
    }
    all_beat();
  }
  void exit(int worker, int local, int code, int signal = 0, bool stopped = false) {
    auto& ranks = reports[worker].ranks;
    int order = 1;
    for (const auto& rank : ranks) order += !rank.running;
    ranks[local] = {.running = false,
                    .exit_code = code,
                    .signal = signal,
                    .stopped = stopped,
                    .exit_order = order,
                    .step = ranks[local].step};
    beat(worker);
  }
  /// The workers obey Order::Idle: what runs is killed, the fence goes up.
  void obey_idle() {
    for (auto& report : reports) {
      ASSERT_EQ(directive_for(session, report.worker, report.incarnation).order, Order::Idle);
      for (int local = 0; local < static_cast<int>(report.ranks.size()); ++local) {
        if (report.ranks[local].running) exit(report.worker, local, 0, SIGKILL, true);
      }
      report.fence = session.attempt;
    }
    all_beat();
  }
  template <typename T>
  const T* last() const {
    for (auto it = commands.rbegin(); it != commands.rend(); ++it) {
      if (const T* found = std::get_if<T>(&*it)) return found;
    }
    return nullptr;
  }
  Order order(int worker = 0) const { return directive_for(session, worker, 1).order; }

  Session session;
  std::vector<WorkerReport> reports;
  Commands commands;
  Time now{0};
};

TEST(Session, WaitsForTheWholeGangThenPublishesOneAboveTheLastAttempt) {
  Gang gang({.workers = 2, .last_attempt = 4});
  gang.beat(1);
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  EXPECT_EQ(gang.order(1), Order::Idle);
  gang.beat(0);
  EXPECT_EQ(gang.session.phase, Phase::Gathering) << "nobody promised yet that attempt 4 is over";
  for (auto& report : gang.reports) report.fence = 4;
  gang.all_beat();
  ASSERT_NE(gang.last<PublishAttempt>(), nullptr);
  EXPECT_EQ(gang.last<PublishAttempt>()->attempt, 5);
  EXPECT_EQ(gang.last<PublishAttempt>()->world_size, 4);
  EXPECT_EQ(gang.order(), Order::Idle) << "no rank before the attempt is published";

  gang.at(Published{5, "127.0.0.1", 4000});
  const auto directive = directive_for(gang.session, 1, 1);
  EXPECT_EQ(directive.order, Order::Run);
  EXPECT_EQ(directive.attempt, 5);
  EXPECT_EQ(directive.world_size, 4);
  EXPECT_EQ(directive.first_rank, 2);
  EXPECT_EQ(directive.master_addr, "127.0.0.1");
  EXPECT_EQ(directive.master_port, 4000);
}

TEST(Session, ANodeThatDoesNotComeEndsTheRunWithTheNamesOfAll) {
  Gang gang({.workers = 4, .gather_limit = seconds(900)});
  for (; gang.now < seconds(900); gang.now += Time(500)) {
    for (const int here : {0, 2}) gang.beat(here);
    ASSERT_EQ(gang.last<JobEnded>(), nullptr) << gang.now.count();
  }
  for (const int here : {0, 2}) gang.beat(here);
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  const Outcome& outcome = gang.last<JobEnded>()->outcome;
  EXPECT_EQ(outcome.exit_code, kExitNodesMissing);
  EXPECT_EQ(outcome.reason, "NodesMissing");
  EXPECT_EQ(outcome.message.find("nodes 1 and 3 of 4 did not join in 900 s; nodes 0 and 2 did"),
            0u);
  EXPECT_NE(outcome.message.find("--rdzv_conf timeout=SECONDS"), std::string::npos);
  for (const int worker : {0, 1, 2, 3}) {
    const auto told = directive_for(gang.session, worker, 1);
    EXPECT_EQ(told.exit_code, kExitNodesMissing) << "a node that comes later hears it, too";
  }
}

TEST(Session, TheLimitHoldsBetweenTwoAttemptsToo) {
  Gang gang({.workers = 2, .silence = seconds(6), .gather_limit = seconds(60)});
  gang.session.budget = {.limit = 3, .used = 0, .total = 0, .saved_step = -1};
  gang.start();
  const auto alone = [&](Time time) {
    for (const Time until = gang.now + time; gang.now < until; gang.now += Time(500)) gang.beat(0);
  };
  alone(seconds(8));  // node 1 is lost
  for (const int local : {0, 1}) gang.exit(0, local, 0, SIGKILL, true);
  gang.reports[0].fence = gang.session.attempt;
  alone(seconds(50));
  EXPECT_EQ(gang.last<JobEnded>(), nullptr) << "it may come again";
  alone(seconds(30));
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitNodesMissing);
}

/// Some of the nodes come, each at its time, and the agent itself may sleep: the run begins when the
/// last one is there; if one does not come in time, it ends at the limit, and never before.
TEST(Session, ARunBeginsOrEndsAtTheLimit) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int below) { return static_cast<int>(random() % below); };
    const int workers = 2 + pick(5);
    const Time limit = seconds(5 + pick(60));
    const Time sleeps_at = seconds(pick(70)),
               sleep = pick(3) == 0 ? seconds(2 + pick(90)) : Time(0);
    const bool stops = pick(4) == 0;
    const Time stop_at = seconds(pick(70));
    Gang gang({.workers = workers, .gather_limit = limit});
    std::vector<Time> comes{Time(0)};
    while (static_cast<int>(comes.size()) < workers) comes.push_back(seconds(pick(80)));
    const Time last = *std::ranges::max_element(comes);
    Time slept{0};
    bool begun = false, ended = false;
    for (; gang.now < seconds(300) && !begun && !ended; gang.now += Time(250)) {
      const Time awake = gang.now - slept;
      if (slept == Time(0) && awake >= sleeps_at && sleep > Time(0)) gang.now += slept = sleep;
      gang.reports[0].stop_requested |= stops && awake >= stop_at;
      for (int w = 0; w < workers; ++w)
        if (awake >= comes[w]) gang.beat(w);
      begun = gang.last<PublishAttempt>() != nullptr;
      ended = gang.last<JobEnded>() != nullptr;
    }
    const Time awake = gang.now - Time(250) - slept;
    ASSERT_NE(begun, ended) << seed;
    if (begun) {
      EXPECT_GE(awake, last) << seed;
      EXPECT_LE(awake, limit + Time(250)) << seed;
      continue;
    }
    const Outcome& outcome = gang.last<JobEnded>()->outcome;
    if (stops && stop_at < std::min(limit, last)) {
      EXPECT_EQ(outcome.exit_code, kExitPreempted) << seed;
      continue;
    }
    if (outcome.exit_code == kExitPreempted) continue;  // both came in one turn
    EXPECT_EQ(outcome.exit_code, kExitNodesMissing) << seed;
    EXPECT_GE(awake, limit) << seed;
    EXPECT_LE(awake, limit + Time(1'000)) << seed;
    EXPECT_GT(last, limit - Time(1'000)) << seed << ": all nodes were there";
  }
}

TEST(Session, AttemptFileThatCannotBeWrittenEndsTheJob) {
  Gang gang({});
  gang.beat(0);
  gang.at(PublishFailed{{ErrorKind::Environment, "no space left", "OUT/checkpoints/attempt"}});
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitEnvironment);
  EXPECT_NE(gang.last<JobEnded>()->outcome.message.find("no space left"), std::string::npos);
  EXPECT_EQ(gang.order(), Order::Finish);
}

TEST(Session, DoneNeedsExitZeroOfEveryRank) {
  Gang gang({.workers = 2});
  gang.start();
  gang.exit(0, 0, kExitDone);
  gang.exit(0, 1, kExitDone);
  gang.exit(1, 0, kExitDone);
  EXPECT_EQ(gang.session.phase, Phase::Running);
  gang.exit(1, 1, kExitDone);
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitDone);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "Completed");
}

TEST(Session, KilledRankIsBlamedNotItsPeersAndTheNextAttemptFollowsThePause) {
  Gang gang(
      {.workers = 2, .budget = {.used = 1}});  // it failed before: the first time has no pause
  gang.start();
  gang.exit(0, 1, kExitPeerLost);  // the victim's report comes first
  EXPECT_EQ(gang.session.phase, Phase::Ending);
  gang.now += Time(200);
  gang.exit(1, 0, 0, SIGKILL);
  EXPECT_EQ(gang.order(), Order::Run) << "others may still tell why they fail";
  gang.now += Time(900);
  gang.at(Tick{});
  gang.obey_idle();
  const auto* failed = gang.last<AttemptFailed>();
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.rank, 2);
  EXPECT_EQ(failed->failure.worker, 1);
  EXPECT_EQ(failed->failure.signal, SIGKILL);
  EXPECT_EQ(failed->failure.reason, "Killed");
  EXPECT_TRUE(failed->restart);
  EXPECT_EQ(failed->budget.used, 2);
  gang.all_beat();
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  gang.now += failed->pause - Time(1);
  gang.all_beat();
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  gang.now += Time(1);
  gang.all_beat();
  EXPECT_EQ(gang.last<PublishAttempt>()->attempt, 2);
}

TEST(Session, AfterAKillTheOthersHaveLessTimeToTellWhy) {
  for (const int signal : {SIGKILL, SIGABRT}) {
    Gang gang({.workers = 2});
    gang.start();
    gang.exit(1, 0, 0, signal);
    gang.now += Time(250);
    gang.at(Tick{});
    EXPECT_EQ(gang.order(), Order::Run);
    gang.now += Time(100);
    gang.at(Tick{});
    EXPECT_EQ(gang.order(), signal == SIGKILL ? Order::Idle : Order::Run)
        << "an abort may follow from another rank's end";
  }
}

TEST(Session, TheFirstFailureIsFollowedByAnAttemptWithoutTimePassing) {
  Gang gang({.workers = 2});
  gang.start();
  gang.exit(1, 0, 0, SIGKILL);
  for (const auto& [worker, local] : {std::pair{0, 0}, {0, 1}, {1, 1}})
    gang.exit(worker, local, kExitPeerLost);
  gang.obey_idle();
  ASSERT_NE(gang.last<AttemptFailed>(), nullptr);
  EXPECT_EQ(gang.last<AttemptFailed>()->pause, Time(0));
  gang.at(Tick{});
  EXPECT_EQ(gang.last<PublishAttempt>()->attempt, 2);
  EXPECT_EQ(gang.now, Time(0));
}

TEST(Session, NoNewAttemptWhileARankOfTheOldOneLives) {
  Gang gang({.workers = 2});
  gang.start();
  gang.exit(0, 0, kExitFailed);
  for (int i = 0; i < 100; ++i) {
    gang.now += Time(400);
    if (i == 50) gang.exit(0, 1, 0, SIGKILL, true);
    gang.reports[0].fence = 1;
    gang.all_beat();  // worker 1 does not obey
    ASSERT_EQ(gang.session.phase, Phase::Ending);
  }
  gang.obey_idle();
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
}

TEST(Session, FatalExitEndsTheJobWithItsCode) {
  for (int code : {kExitBadInput, kExitEnvironment, kExitNotFinite}) {
    Gang gang({});
    gang.start();
    gang.reports[0].ranks[0].reason = "";
    gang.exit(0, 0, kExitPeerLost);
    gang.exit(0, 1, code);
    gang.obey_idle();
    ASSERT_NE(gang.last<JobEnded>(), nullptr);
    EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, code);
    EXPECT_EQ(gang.last<AttemptFailed>()->failure.rank, 1);
    EXPECT_FALSE(gang.last<AttemptFailed>()->restart);
  }
}

TEST(Session, BudgetEndsTheJobAndANewerCheckpointGivesItBack) {
  Gang gang({.budget = {.limit = 1}});
  auto fail_once = [&] {
    gang.start();
    gang.exit(0, 0, kExitFailed);
    gang.exit(0, 1, kExitPeerLost);
    gang.obey_idle();
    gang.now += seconds(1);
  };
  fail_once();
  EXPECT_TRUE(gang.last<AttemptFailed>()->restart);
  gang.at(CheckpointSaved{10});
  fail_once();
  EXPECT_TRUE(gang.last<AttemptFailed>()->restart);
  fail_once();
  EXPECT_FALSE(gang.last<AttemptFailed>()->restart);
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitFailed);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "BackoffLimitExceeded");
}

TEST(Session, SilentWorkerEndsTheAttemptAndIsNamed) {
  Gang gang({.workers = 2});
  gang.start();
  for (int i = 0; i < 14; ++i) {
    gang.now += Time(500);
    gang.beat(0);
  }
  EXPECT_EQ(gang.session.phase, Phase::Ending);
  gang.exit(0, 0, 0, SIGKILL, true);
  gang.exit(0, 1, 0, SIGKILL, true);
  gang.reports[0].fence = 1;
  gang.beat(0);
  ASSERT_NE(gang.last<AttemptFailed>(), nullptr);
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.reason, "WorkerLost");
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.worker, 1);
}

TEST(Session, OwnSleepIsNobodysSilence) {
  Gang gang({.workers = 2, .stall = seconds(100)});
  gang.start();
  gang.now += seconds(200);  // this agent was stopped for a while
  gang.at(Tick{});
  EXPECT_EQ(gang.session.phase, Phase::Running);
  gang.beat(1);
  EXPECT_EQ(gang.session.phase, Phase::Running);
  for (int i = 0; i < 14; ++i) {
    gang.now += Time(500);
    gang.beat(0);
  }
  EXPECT_EQ(gang.session.phase, Phase::Ending) << "now worker 1 is silent";
}

TEST(Session, ReplacedWorkerEndsTheAttemptAndItsGhostIsWaitedFor) {
  Gang gang({.workers = 2, .budget = {.used = 1}});
  gang.start();
  gang.now += Time(100);
  gang.reports[1] = {.worker = 1, .incarnation = 2, .slots = 2};
  gang.beat(1);
  EXPECT_EQ(gang.session.phase, Phase::Ending);
  EXPECT_EQ(directive_for(gang.session, 1, 1).order, Order::Finish) << "the old life shall end";
  gang.obey_idle();
  EXPECT_EQ(gang.session.phase, Phase::Ending) << "its ranks may live until their lease ends";
  gang.now += Time(3000);
  gang.all_beat();
  EXPECT_EQ(gang.session.phase, Phase::Ending);
  gang.now += Time(3000);
  gang.all_beat();
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.worker, 1);
}

TEST(Session, StopSavesAndEndsPreempted) {
  Gang gang({.workers = 2});
  gang.start();
  for (auto& rank : gang.reports[0].ranks) rank.step = 3;
  gang.beat(0);
  gang.reports[1].stop_requested = true;
  gang.beat(1);
  EXPECT_EQ(gang.order(0), Order::Preempt);
  EXPECT_EQ(gang.order(1), Order::Preempt);
  for (int worker : {0, 1}) {
    gang.exit(worker, 0, kExitPreempted);
    gang.exit(worker, 1, kExitPreempted);
  }
  gang.obey_idle();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitPreempted);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "Preempted");
  EXPECT_EQ(gang.last<AttemptFailed>(), nullptr);
}

TEST(Session, AStoppedGangSendsNoSuccessorAway) {
  Gang gang({.workers = 2});
  gang.start();
  gang.reports[1].stop_requested = true;
  gang.beat(1);
  for (int worker : {0, 1}) {
    gang.exit(worker, 0, kExitPreempted);
    gang.exit(worker, 1, kExitPreempted);
  }
  gang.obey_idle();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_TRUE(gang.last<JobEnded>()->clear);
  EXPECT_EQ(gang.order(1), Order::Finish);
  gang.reports[1] = {.worker = 1, .incarnation = 2, .slots = 2};
  gang.beat(1);
  EXPECT_EQ(directive_for(gang.session, 1, 2).order, Order::Idle)
      << "it waits for the next worker 0";
  EXPECT_EQ(directive_for(gang.session, 1, 1).order, Order::Finish);
}

/// Worker 1 is silent until it is given up, and comes back.
void lose_worker_1(Gang& gang) {
  gang.start();
  for (int i = 0; i < 14; ++i) {
    gang.now += Time(500);
    gang.beat(0);
  }
  for (int local : {0, 1}) {
    gang.exit(0, local, 0, SIGKILL, true);
    gang.reports[1].ranks[local] = {.running = false, .signal = SIGKILL, .stopped = true};
  }
  for (auto& report : gang.reports) report.fence = gang.session.attempt;
  gang.all_beat();
}

TEST(Session, ALostWorkerIsChargedOnlyWhereNoOperatorSeesItsPod) {
  Gang alone({.workers = 2, .budget = {.limit = 0}});
  lose_worker_1(alone);
  ASSERT_NE(alone.last<JobEnded>(), nullptr);
  EXPECT_EQ(alone.last<JobEnded>()->outcome.reason, kReasonBackoffLimitExceeded);

  Gang operated({.workers = 2, .budget = {.limit = 0}, .operated = true});
  lose_worker_1(operated);
  EXPECT_EQ(operated.last<JobEnded>(), nullptr);
  ASSERT_NE(operated.last<AttemptFailed>(), nullptr);
  EXPECT_EQ(operated.last<AttemptFailed>()->failure.reason, "WorkerLost");
  EXPECT_TRUE(operated.last<AttemptFailed>()->restart);
  EXPECT_EQ(operated.session.budget.used, 0);
}

TEST(Session, TheOperatorsAccountHoldsUpToItsAttempt) {
  Gang gang({.budget = {.limit = 1}, .operated = true});
  const auto fail = [&] {
    gang.start();
    gang.exit(0, 0, kExitFailed);
    gang.exit(0, 1, kExitPeerLost);
    gang.obey_idle();
    gang.now += seconds(1);
  };
  fail();
  EXPECT_EQ(gang.session.budget.used, 1);
  gang.at(Accounted{0, {.limit = 1, .used = 0}});
  EXPECT_EQ(gang.session.budget.used, 1) << "it does not know of attempt 1 yet";
  gang.at(Accounted{1, {.limit = 1, .used = 0}});
  EXPECT_EQ(gang.session.budget.used, 0) << "a rule left it uncharged";
  fail();
  EXPECT_EQ(gang.last<JobEnded>(), nullptr);
  gang.at(Accounted{2, {.limit = 0, .used = 0}});
  fail();
  ASSERT_NE(gang.last<JobEnded>(), nullptr) << "backoffLimit was edited";
}

/// A gang of three in its first attempt; the pod of `worker` is taken away at step 3, and all
/// ranks save.
struct DrainedGang : Gang {
  explicit DrainedGang(int worker) : Gang({.workers = 3, .budget = {.limit = 0}}), leaver(worker) {
    start();
    for (auto& rank : reports[0].ranks) rank.step = 3;
    beat(0);
    reports[worker].departing = true;
    beat(worker);
    for (int w : {0, 1, 2}) EXPECT_EQ(order(w), Order::Preempt);
  }
  void save(int worker) {
    for (int local : {0, 1}) exit(worker, local, kExitPreempted);
  }
  void save_all() {
    for (int w : {0, 1, 2}) save(w);
    for (auto& report : reports) {
      EXPECT_EQ(order(report.worker), Order::Idle);
      report.fence = session.attempt;
    }
    all_beat();
  }
  void replace() {
    reports[leaver] = {.worker = leaver, .incarnation = 2, .slots = 2, .fence = session.attempt};
    all_beat();
  }
  int leaver;
};

TEST(Session, ADrainedWorkerLeavesTheOthersStayAndItsSuccessorJoins) {
  DrainedGang gang(2);
  gang.save_all();
  ASSERT_NE(gang.last<AttemptYielded>(), nullptr);
  EXPECT_NE(gang.last<AttemptYielded>()->message.find("worker 2"), std::string::npos);
  EXPECT_EQ(gang.last<AttemptFailed>(), nullptr) << "nobody failed and nothing is charged";
  EXPECT_EQ(gang.last<JobEnded>(), nullptr) << "no budget is needed";
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  gang.reports[2].leaving = true;
  gang.all_beat();
  EXPECT_EQ(gang.session.phase, Phase::Gathering) << "it waits for the successor";
  EXPECT_EQ(gang.order(0), Order::Idle);
  gang.replace();
  ASSERT_EQ(gang.session.phase, Phase::Publishing);
  EXPECT_EQ(gang.session.publishing, 2);
  gang.at(Published{2, "127.0.0.1", 4000});
  EXPECT_EQ(gang.order(0), Order::Run) << "the departure is over with its attempt";
}

TEST(Session, ADrainedWorkerZeroHandsOver) {
  DrainedGang gang(0);
  gang.save_all();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_TRUE(gang.last<JobEnded>()->clear) << "its successor need not wait for ranks";
  EXPECT_TRUE(gang.last<JobEnded>()->outcome.handed_over);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitPreempted);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, kReasonPreempted);
  EXPECT_EQ(gang.order(0), Order::Finish);
  EXPECT_EQ(gang.order(1), Order::Idle) << "it waits for the next worker 0";
  gang.reports[1].departing = true;
  gang.beat(1);
  EXPECT_EQ(gang.order(1), Order::Finish) << "its node is drained too";
}

TEST(Session, ADepartureWhileGatheringStartsNothing) {
  Gang gang({.workers = 2});
  gang.beat(0);
  gang.reports[1].departing = true;
  gang.beat(1);
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  gang.reports[1] = {.worker = 1, .incarnation = 2, .slots = 2};
  gang.beat(1);
  EXPECT_EQ(gang.session.phase, Phase::Publishing);
  gang.reports[0].departing = true;
  gang.beat(0);
  gang.at(Published{1, "127.0.0.1", 4000});
  EXPECT_EQ(gang.last<AttemptStarted>(), nullptr);
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_TRUE(gang.last<JobEnded>()->outcome.handed_over);
}

TEST(Session, AStopDuringADepartureIsForEverybody) {
  DrainedGang gang(2);
  gang.reports[0].stop_requested = true;
  gang.beat(0);
  for (int w : {0, 1, 2}) gang.save(w);
  for (auto& report : gang.reports) report.fence = 1;
  gang.all_beat();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_FALSE(gang.last<JobEnded>()->outcome.handed_over);
  EXPECT_EQ(gang.order(1), Order::Finish);
}

TEST(Session, ARankThatFailsWhileItSavesForADepartureIsCharged) {
  DrainedGang gang(2);
  gang.save(0);
  gang.save(2);
  gang.exit(1, 0, kExitFailed);
  gang.exit(1, 1, kExitPeerLost);
  for (auto& report : gang.reports) report.fence = 1;
  gang.all_beat();
  ASSERT_NE(gang.last<AttemptFailed>(), nullptr);
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.worker, 1);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, kReasonBackoffLimitExceeded);
}

TEST(Session, AWorkerThatIsTakenBeforeItSavedIsNobodysFailure) {
  DrainedGang gang(2);
  for (int i = 0; i < 14; ++i) {  // its grace was over: it is killed, and its peers notice
    gang.now += Time(500);
    gang.beat(0);
    gang.beat(1);
  }
  for (int w : {0, 1}) {
    for (int local : {0, 1}) gang.exit(w, local, kExitPeerLost);
    gang.reports[w].fence = 1;
    gang.beat(w);
  }
  EXPECT_EQ(gang.last<AttemptFailed>(), nullptr);
  ASSERT_NE(gang.last<AttemptYielded>(), nullptr);
  EXPECT_NE(gang.last<AttemptYielded>()->message.find("not all saved"), std::string::npos);
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
}

TEST(Session, AnEndThatIsForGoodIsToldToEverybody) {
  Gang gang({.workers = 2});
  gang.start();
  for (int worker : {0, 1}) {
    gang.exit(worker, 0, kExitDone);
    gang.exit(worker, 1, kExitDone);
  }
  ASSERT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitDone);
  gang.reports[1] = {.worker = 1, .incarnation = 2, .slots = 2};
  gang.beat(1);
  EXPECT_EQ(directive_for(gang.session, 1, 2).order, Order::Finish);
}

TEST(Session, StopBeforeTheFirstStepIsCleanWhoeverWasHit) {
  Gang gang({.workers = 2});
  gang.start();
  gang.reports[1].stop_requested = true;
  gang.exit(0, 0, kExitPreempted);
  gang.exit(0, 1, kExitPeerLost);  // it had joined, and lost its peers
  gang.exit(1, 0, 0, SIGTERM);     // it had no handler yet
  gang.exit(1, 1, kExitPreempted);
  gang.obey_idle();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitPreempted);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "StoppedWithoutCheckpoint");
  EXPECT_NE(gang.last<JobEnded>()->outcome.message.find("before the attempt's first step"),
            std::string::npos);
  EXPECT_EQ(gang.last<AttemptFailed>(), nullptr) << "nobody failed";
}

TEST(Session, StopThatIsNotObeyedIsKilledAfterTheGrace) {
  Gang gang({.grace = seconds(20)});
  gang.start();
  gang.reports[0].stop_requested = true;
  gang.beat(0);
  for (int i = 0; i < 40; ++i) {
    gang.now += Time(500);
    gang.beat(0);
    ASSERT_EQ(gang.order(), Order::Preempt);
  }
  gang.now += Time(500);
  gang.beat(0);
  gang.obey_idle();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "StoppedWithoutCheckpoint");
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitPreempted);
}

TEST(Session, StopBeforeTheAttemptStartsNothing) {
  Gang gang({});
  gang.beat(0);
  gang.reports[0].stop_requested = true;
  gang.beat(0);
  EXPECT_EQ(gang.last<JobEnded>(), nullptr) << "publishing is under way";
  gang.at(Published{1, "127.0.0.1", 4000});
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<AttemptStarted>(), nullptr);
}

TEST(Session, FailureWhileStoppingIsNotRestarted) {
  Gang gang({});
  gang.start();
  gang.reports[0].stop_requested = true;
  gang.exit(0, 0, kExitFailed);
  gang.exit(0, 1, kExitPeerLost);
  gang.obey_idle();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "StoppedWithoutCheckpoint");
  ASSERT_NE(gang.last<AttemptFailed>(), nullptr);
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.rank, 0);
}

TEST(Session, PreemptedByStrangersIsRestarted) {
  Gang gang({});
  gang.start();
  gang.exit(0, 0, kExitPreempted);
  EXPECT_EQ(gang.session.phase, Phase::Running) << "the others are saving";
  gang.exit(0, 1, kExitPreempted);
  gang.obey_idle();
  ASSERT_NE(gang.last<AttemptFailed>(), nullptr);
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.reason, "Preempted");
  EXPECT_TRUE(gang.last<AttemptFailed>()->restart);
}

TEST(Session, HangIsEndedAndStepsKeepItAlive) {
  Gang gang({.stall = seconds(10)});
  gang.start();
  for (int i = 0; i < 60; ++i) {
    gang.now += Time(500);
    gang.reports[0].ranks[1].step = i;
    gang.beat(0);
    ASSERT_EQ(gang.session.phase, Phase::Running);
  }
  for (int i = 0; i < 21; ++i) {
    gang.now += Time(500);
    gang.beat(0);
  }
  EXPECT_EQ(gang.session.phase, Phase::Ending);
  EXPECT_EQ(gang.order(), Order::Run) << "their stacks are taken before they are killed";
  EXPECT_EQ(directive_for(gang.session, 0, 1).stacks, 1);
  for (int i = 0; i < 4; ++i) {
    gang.now += seconds(1);
    gang.beat(0);
  }
  gang.obey_idle();  // an agent that does not answer is not waited for
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.reason, "HangDetected");
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.step, 59);
}

/// Two workers of two ranks; every beat answers what agent 0 asks for.
struct Watched : testing::Test {
  Gang gang{{.workers = 2, .stall = seconds(10)}};
  std::vector<RankLook> looks = std::vector<RankLook>(4);

  void SetUp() override {
    gang.start();
    for (auto& look : looks) look = in({412, "all_gather", "layer 3", 4096});
  }
  static RankLook in(const CollectiveSeen& what) {
    return {.known = true,
            .phase = "training",
            .step = 41,
            .issued = what.sequence,
            .ended = what.sequence - 1,
            .begun = {what}};
  }
  void pass(Time duration) {
    for (const Time end = gang.now + duration; gang.now < end; gang.now += Time(500)) {
      for (auto& report : gang.reports) {
        const auto directive = directive_for(gang.session, report.worker, 1);
        report.look = directive.look;
        const auto first = looks.begin() + 2 * report.worker;
        report.looks.assign(first, directive.look > 0 ? first + 2 : first);
        report.stacks = directive.stacks;
        const std::string worker = std::to_string(report.worker);
        report.where = {"in a" + worker, "in b" + worker};
      }
      gang.all_beat();
    }
  }
};

TEST_F(Watched, TheRankThatDidNotArriveIsNamed) {
  looks[2].begun.clear();
  looks[2].ended = 411;
  pass(seconds(9));
  EXPECT_EQ(gang.session.phase, Phase::Running);
  pass(seconds(5));
  ASSERT_EQ(gang.session.phase, Phase::Ending);
  gang.obey_idle();
  const auto* failed = gang.last<AttemptFailed>();
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.reason, "HangDetected");
  EXPECT_EQ(failed->failure.rank, 2);
  EXPECT_EQ(failed->failure.worker, 1);
  EXPECT_EQ(failed->failure.missing_ranks, "2");
  EXPECT_EQ(failed->failure.collective, "all_gather #412 (layer 3, 4096 bytes)");
  EXPECT_NE(failed->failure.message.find("rank 2 did not arrive"), std::string::npos)
      << failed->failure.message;
  EXPECT_NE(failed->failure.message.find("; rank 2 is in a1"), std::string::npos)
      << failed->failure.message;
  EXPECT_TRUE(failed->restart);
}

TEST_F(Watched, StacksThatSomebodyWantsAreAskedForAndTheRanksGoOn) {
  pass(seconds(1));
  EXPECT_EQ(directive_for(gang.session, 1, 1).stacks, 0);
  gang.at(StacksWanted{1700});
  EXPECT_EQ(directive_for(gang.session, 0, 1).stacks, 1700);
  EXPECT_EQ(directive_for(gang.session, 1, 1).stacks, 1700);
  EXPECT_FALSE(have_stacks(gang.session));
  gang.beat(0);
  EXPECT_EQ(directive_for(gang.session, 1, 1).stacks, 1700) << "not all have answered";
  pass(seconds(1));
  EXPECT_EQ(directive_for(gang.session, 1, 1).stacks, 0) << "beats need not carry them any more";
  EXPECT_EQ(gang.session.phase, Phase::Running);
  gang.at(StacksWanted{1701});
  gang.exit(0, 0, 1);
  gang.now += seconds(2);
  gang.beat(0);
  gang.obey_idle();
  gang.now += seconds(40);
  gang.all_beat();
  gang.at(Published{gang.session.publishing, "127.0.0.1", 4000});
  EXPECT_EQ(gang.session.attempt, 2);
  EXPECT_EQ(directive_for(gang.session, 0, 1).stacks, 0) << "the next attempt is not asked again";
}

TEST_F(Watched, WhereNobodyCanBeToldApartNobodyIsBlamed) {
  pass(seconds(15));
  ASSERT_EQ(gang.session.phase, Phase::Ending);
  gang.obey_idle();
  const auto* failed = gang.last<AttemptFailed>();
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.rank, -1);
  EXPECT_EQ(failed->failure.worker, -1);
  EXPECT_EQ(failed->failure.reason, "HangDetected");
  EXPECT_NE(failed->failure.message.find("; rank 0 is in a0"), std::string::npos)
      << failed->failure.message;
  EXPECT_EQ(gang.session.budget.used, 1) << "it is charged all the same";
}

TEST_F(Watched, RanksThatMoveDoNotHang) {
  for (int i = 0; i < 60; ++i) {
    ++looks[3].ticks;
    pass(seconds(3));
    ASSERT_EQ(gang.session.phase, Phase::Running);
  }
}

TEST_F(Watched, NobodyIsAskedWhileStepsCome) {
  for (int i = 0; i < 60; ++i) {
    gang.reports[1].ranks[0].step = i;
    pass(seconds(2));
    ASSERT_EQ(directive_for(gang.session, 1, 1).look, 0);
  }
}

TEST_F(Watched, ARankThatHoldsUpTheOthersIsToldOnceAndForgottenWithTheAttempt) {
  const auto train = [&](Time duration) {
    for (const Time end = gang.now + duration; gang.now < end;) {
      for (auto& report : gang.reports) {
        for (auto& rank : report.ranks) {
          ++rank.step;
          const bool slow = report.worker == 1 && &rank == &report.ranks[0];
          rank.pace = {rank.pace.steps + 1, rank.pace.step_us + 500'000,
                       rank.pace.own_us + (slow ? 450'000 : 200'000)};
        }
      }
      pass(Time(500));
    }
  };
  train(seconds(60));
  const auto* changed = gang.last<StragglersChanged>();
  ASSERT_NE(changed, nullptr);
  ASSERT_EQ(changed->stragglers.size(), 1u);
  EXPECT_EQ(changed->stragglers[0].rank, 2);
  EXPECT_EQ(gang.session.phase, Phase::Running) << "nothing else follows from it";
  const auto told = [&] {
    return std::ranges::count_if(gang.commands, [](const Command& command) {
      return std::holds_alternative<StragglersChanged>(command);
    });
  };
  EXPECT_EQ(told(), 1);
  train(seconds(60));
  EXPECT_EQ(told(), 1);
}

TEST_F(Watched, TheRankOnWhichItsPeersGaveUpIsNamedByWhatItShows) {
  looks[1].begun.clear();
  looks[1].ended = 400;
  gang.exit(0, 0, kExitPeerLost);
  EXPECT_GT(directive_for(gang.session, 0, 1).look, 0) << "before they are killed";
  pass(seconds(2));
  gang.obey_idle();
  const auto* failed = gang.last<AttemptFailed>();
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->failure.rank, 1);
  EXPECT_NE(failed->failure.message.find("hung: its peers gave up"), std::string::npos);
  EXPECT_NE(failed->failure.message.find("rank 1 did not arrive"), std::string::npos)
      << failed->failure.message;
}

TEST(Session, HungRankIsBlamedWhenItsPeersGaveUp) {
  Gang gang({});
  gang.start();
  gang.exit(0, 0, kExitPeerLost);
  gang.now += seconds(2);
  gang.beat(0);
  gang.obey_idle();
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.rank, 1);
  EXPECT_EQ(gang.last<AttemptFailed>()->failure.reason, "HangDetected");
}

TEST(Session, BeatsOfOneTurnAreJudgedTogetherAndHideNothing) {
  Gang gang({.workers = 3}, 1);
  Beats all;
  for (auto& report : gang.reports) {
    ++report.sequence;
    all.reports.push_back(report);
  }
  gang.at(all);
  ASSERT_NE(gang.last<PublishAttempt>(), nullptr) << "the whole gang came in one turn";
  gang.at(Published{gang.session.publishing, "127.0.0.1", 4000});
  for (auto& report : gang.reports) {
    report.attempt = gang.session.attempt;
    report.ranks.assign(1, RankState{});
  }
  gang.all_beat();
  // Worker 2's rank fails, and its successor speaks in the same turn.
  WorkerReport failed = gang.reports[2];
  ++failed.sequence;
  failed.ranks[0] = {.running = false, .exit_code = 1, .exit_order = 1, .reason = "first"};
  WorkerReport successor{.worker = 2, .incarnation = 2, .sequence = 1, .slots = 1};
  gang.at(Beats{{failed, successor}});
  EXPECT_EQ(gang.session.phase, Phase::Ending);
  EXPECT_EQ(gang.session.suspect, 2) << "what the first life told last was seen";
  gang.at(Beats{{{.worker = 9}, {.worker = -1}}});  // unknown workers change nothing
  EXPECT_EQ(gang.session.phase, Phase::Ending);
}

TEST(Session, OldBeatsAndUnknownWorkersChangeNothing) {
  Gang gang({});
  gang.start();
  WorkerReport old = gang.reports[0];
  old.ranks[0] = {.running = false, .exit_code = 1};
  gang.at(Beat{old});  // the same sequence number
  EXPECT_EQ(gang.session.phase, Phase::Running);
  old.worker = 5;
  old.sequence += 10;
  gang.at(Beat{old});
  EXPECT_EQ(gang.session.phase, Phase::Running);
  EXPECT_EQ(directive_for(gang.session, 5, 1).order, Order::Idle)
      << "it may be of the larger gang that an elastic job becomes";
  EXPECT_EQ(directive_for(gang.session, -1, 1).order, Order::Finish);
  EXPECT_EQ(gang.order(), Order::Run);
}

TEST(Session, SuccessorOfALostWorkerZeroWaitsForTheGhosts) {
  Gang gang({.last_attempt = 1, .quiet_until = Time(6000)});
  gang.reports[0].fence = 1;
  gang.beat(0);
  EXPECT_EQ(gang.session.phase, Phase::Gathering);
  gang.now = Time(6000);
  gang.beat(0);
  EXPECT_EQ(gang.session.phase, Phase::Publishing);
}

/// launcher: Command.
struct OwnProgram : testing::Test {
  Gang gang{{.workers = 2, .budget = {.limit = 1}}};
  void start() {
    gang.start();
    for (auto& report : gang.reports) {
      for (auto& rank : report.ranks) rank.own_codes = true;
    }
    gang.all_beat();
  }
  void exit(int worker, int local, int code, bool asked = false) {
    auto& rank = gang.reports[worker].ranks[local];
    int order = 1;
    for (const auto& other : gang.reports[worker].ranks) order += !other.running;
    rank = {.running = false,
            .exit_code = code,
            .asked = asked,
            .own_codes = true,
            .exit_order = order};
    gang.beat(worker);
  }
  void stop() {
    gang.reports[1].stop_requested = true;
    gang.beat(1);
    ASSERT_EQ(gang.order(), Order::Preempt);
  }
};

TEST_F(OwnProgram, ZeroOfEveryRankIsCompleted) {
  start();
  for (int w : {0, 1}) {
    for (int local : {0, 1}) {
      EXPECT_EQ(gang.last<JobEnded>(), nullptr);
      exit(w, local, 0);
    }
  }
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "Completed");
  EXPECT_EQ(gang.last<JobEnded>()->outcome.message, "every rank ended with exit code 0");
}

TEST_F(OwnProgram, EveryOtherCodeIsAFailureThatTheBudgetPaysFor) {
  for (const int code : {2, 3}) {  // fatal, were it a rank of ours
    start();
    exit(1, 0, code);
    gang.now += Time(1001);
    gang.at(Tick{});
    gang.obey_idle();
    ASSERT_NE(gang.last<AttemptFailed>(), nullptr);
    EXPECT_EQ(gang.last<AttemptFailed>()->failure.exit_code, code);
    EXPECT_EQ(gang.last<AttemptFailed>()->failure.reason, "RankFailed");
    EXPECT_EQ(gang.last<AttemptFailed>()->failure.rank, 2);
    EXPECT_EQ(gang.last<AttemptFailed>()->restart, code == 2) << "one restart is allowed";
    gang.now += gang.last<AttemptFailed>()->pause + Time(1);
    for (auto& report : gang.reports) report.ranks.clear();
  }
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "BackoffLimitExceeded");
}

TEST_F(OwnProgram, AStopIsNoCompletionWhateverItsRanksReturn) {
  start();
  exit(0, 0, 0);  // before anybody was asked
  stop();
  exit(0, 1, 0, true);
  exit(1, 0, 1, true);
  exit(1, 1, 143, true);
  gang.obey_idle();
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.exit_code, kExitPreempted);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "StoppedWithoutCheckpoint");
  EXPECT_EQ(gang.last<AttemptFailed>(), nullptr);
}

TEST_F(OwnProgram, AStopThatComesTooLateChangesNothing) {
  start();
  stop();
  for (int w : {0, 1}) {
    for (int local : {0, 1}) exit(w, local, 0);
  }
  ASSERT_NE(gang.last<JobEnded>(), nullptr);
  EXPECT_EQ(gang.last<JobEnded>()->outcome.reason, "Completed");
}

}  // namespace
}  // namespace dsj::agent
