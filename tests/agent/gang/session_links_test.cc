// What agent 0 makes of slow links: who is told, who is waited for, and when nothing is measured again.
#include <gmock/gmock.h>

#include <csignal>

#include "agent/gang/session.h"
#include "job/contract.h"
#include "tests/agent/links/played_links.h"

namespace dsj::agent {
namespace {

using testing::HasSubstr;

/// Workers on nodes of their own that beat, measure and obey, by hand.
struct LinkedGang {
  explicit LinkedGang(int workers, bool moves = true, int percent = 20)
      : session({.workers = workers, .operated = true, .link_percent = percent}, Time(0)) {
    for (int w = 0; w < workers; ++w) {
      reports.push_back({.worker = w});
      place(w, "n" + std::to_string(w), moves);
    }
  }
  void place(int worker, const std::string& node, bool moves) {
    if (meters.size() <= static_cast<size_t>(worker)) meters.emplace_back();
    meters[static_cast<size_t>(worker)] = std::make_unique<PlayedLinks>(network, node, moves);
    reports[static_cast<size_t>(worker)].link = meters[static_cast<size_t>(worker)]->place();
  }
  Directive directive(int worker) const {
    return directive_for(session, worker, reports[static_cast<size_t>(worker)].incarnation);
  }
  void at(const Event& event) {
    auto out = step(session, event, now);
    commands.insert(commands.end(), out.begin(), out.end());
  }
  /// A beat of everybody, after they did what they were told.
  void turn() {
    now += Time(100);
    for (auto& report : reports) {
      const LinkOrder order = directive(report.worker).link;
      if (order.round > 0 && order.round != report.link_rate.round) {
        PlayedLinks& meter = *meters[static_cast<size_t>(report.worker)];
        meter.send(order);
        report.link_rate = *meter.take();
      }
      ++report.sequence;
      at(Beat{report});
    }
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) turn();
  }
  template <typename T>
  int count() const {
    int found = 0;
    for (const auto& command : commands) found += std::holds_alternative<T>(command);
    return found;
  }
  /// The pod of a worker ends; its successor is on another node.
  void replace(int worker, const std::string& node) {
    auto& report = reports[static_cast<size_t>(worker)];
    report = {.worker = worker, .incarnation = report.incarnation + 1};
    place(worker, node, true);
  }

  std::shared_ptr<PlayedNetwork> network = std::make_shared<PlayedNetwork>();
  Session session;
  std::vector<std::unique_ptr<PlayedLinks>> meters;
  std::vector<WorkerReport> reports;
  Commands commands;
  Time now{0};
};

TEST(SessionLinks, AnAttemptStartsWhenTheLinksWereMeasured) {
  LinkedGang gang(4);
  gang.turn();
  EXPECT_EQ(gang.count<PublishAttempt>(), 0);
  EXPECT_EQ(gang.directive(1).link.address, "n2");
  EXPECT_EQ(gang.directive(1).link.key, "key of n2");
  EXPECT_EQ(gang.directive(1).order, Order::Idle);
  gang.turn();
  EXPECT_EQ(gang.count<LinksMeasured>(), 1);
  EXPECT_EQ(gang.count<PublishAttempt>(), 1);
  EXPECT_EQ(gang.directive(1).link.round, 0);
  EXPECT_EQ(gang.directive(1).slow_link, "");
}

TEST(SessionLinks, ASlowWorkerMovesAndTheOthersWait) {
  LinkedGang gang(4);
  gang.network->bytes_per_second["n2"] = 1'000'000;
  gang.turns(5);
  EXPECT_EQ(gang.count<PublishAttempt>(), 0);
  EXPECT_THAT(gang.directive(2).slow_link, HasSubstr("1.00 MB/s from node n1 (worker 1)"));
  for (int w : {0, 1, 3}) EXPECT_EQ(gang.directive(w).slow_link, "");
  EXPECT_EQ(gang.network->transfers, 8);
  gang.reports[2].departing = true;
  gang.turns(2);
  gang.reports[2].leaving = true;
  gang.turns(2);
  EXPECT_EQ(gang.count<PublishAttempt>(), 0);
  EXPECT_EQ(gang.session.phase, Phase::Gathering) << "nobody else ends";
  gang.replace(2, "n9");
  gang.turns(3);
  EXPECT_EQ(gang.network->transfers, 12) << "with the new node";
  EXPECT_EQ(gang.directive(2).slow_link, "");
  EXPECT_EQ(gang.count<PublishAttempt>(), 1);
}

TEST(SessionLinks, WhatIsOnlyReportedHoldsNobodyUp) {
  LinkedGang gang(4, false);
  gang.network->bytes_per_second["n2"] = 1'000'000;
  gang.turns(3);
  EXPECT_EQ(gang.count<PublishAttempt>(), 1);
  EXPECT_THAT(gang.directive(2).slow_link, HasSubstr("1.00 MB/s"));
}

TEST(SessionLinks, ARestartInPlaceMeasuresNothing) {
  LinkedGang gang(3);
  gang.turns(2);
  gang.at(Published{1, "127.0.0.1", 4000});
  for (auto& report : gang.reports) {
    report.attempt = 1;
    report.ranks = {RankState{}};
  }
  gang.turn();
  gang.reports[1].ranks[0] = {.running = false, .exit_code = 1};
  gang.turn();
  for (auto& report : gang.reports) {
    if (report.ranks[0].running)
      report.ranks[0] = {.running = false, .signal = SIGKILL, .stopped = true};
    report.fence = 1;
  }
  gang.turns(20);
  EXPECT_EQ(gang.count<PublishAttempt>(), 2);
  EXPECT_EQ(gang.network->transfers, 3);
  EXPECT_EQ(gang.count<LinksMeasured>(), 1);
}

TEST(SessionLinks, WorkerZeroMovesToo) {
  LinkedGang gang(3);
  gang.network->bytes_per_second["n0"] = 1'000'000;
  gang.turns(5);
  EXPECT_THAT(gang.directive(0).slow_link, HasSubstr("1.00 MB/s"));
  gang.reports[0].departing = true;
  gang.turn();
  EXPECT_EQ(gang.session.phase, Phase::Finished);
  EXPECT_TRUE(gang.session.outcome.handed_over);
  EXPECT_EQ(gang.directive(1).order, Order::Idle) << "it waits for the next worker 0";
}

TEST(SessionLinks, OneWorkerAndSwitchedOffMeasureNothing) {
  LinkedGang alone(1), off(3, true, 0);
  for (LinkedGang* gang : {&alone, &off}) {
    gang->turn();
    EXPECT_EQ(gang->count<PublishAttempt>(), 1);
    EXPECT_EQ(gang->network->transfers, 0);
  }
}

TEST(SessionLinks, AStopMeanwhileEndsTheJob) {
  LinkedGang gang(3);
  gang.turn();
  gang.reports[1].stop_requested = true;
  gang.turn();
  EXPECT_EQ(gang.session.phase, Phase::Finished);
  EXPECT_EQ(gang.session.outcome.exit_code, contract::kExitPreempted);
}

}  // namespace
}  // namespace dsj::agent
