// How a gang's links are measured: who sends to whom, how often, and when it is over.
#include "agent/links/link_check.h"

#include <gmock/gmock.h>

#include <set>

#include "agent/wire/transport.h"
#include "tests/agent/links/played_links.h"

namespace dsj::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// Workers that do at once what they are told, unless they are mute.
struct MeasuredGang {
  explicit MeasuredGang(int workers, int per_node = 1) {
    for (int w = 0; w < workers; ++w) {
      const std::string node = "n" + std::to_string(w / per_node);
      meters.push_back(std::make_unique<PlayedLinks>(network, node, true));
      reports.push_back({.worker = w, .link = meters.back()->place()});
    }
  }
  bool measure() {
    std::vector<const WorkerReport*> gang;
    for (const auto& report : reports) gang.push_back(&report);
    return check.measure(gang, percent, now);
  }
  /// One beat of everybody.
  void obey() {
    now += Time(100);
    for (auto& report : reports) {
      const LinkOrder order = check.order(report.worker);
      if (mute.contains(report.worker) || order.round == 0) continue;
      if (order.round == report.link_rate.round) continue;
      meters[static_cast<size_t>(report.worker)]->send(order);
      report.link_rate = *meters[static_cast<size_t>(report.worker)]->take();
    }
  }
  /// Rounds until it is over.
  int run() {
    int rounds = 0;
    for (; !measure(); ++rounds) {
      EXPECT_LT(rounds, 100);
      if (rounds >= 100) break;
      obey();
    }
    return rounds;
  }

  std::shared_ptr<PlayedNetwork> network = std::make_shared<PlayedNetwork>();
  LinkCheck check;
  std::vector<std::unique_ptr<PlayedLinks>> meters;
  std::vector<WorkerReport> reports;
  std::set<int> mute;
  int percent = 20;
  Time now{1000};
};

TEST(LinkCheck, OneRoundSufficesWhereNothingIsSlow) {
  MeasuredGang gang(8);
  EXPECT_EQ(gang.run(), 1);
  EXPECT_EQ(gang.network->transfers, 8);
  const auto found = gang.check.take_findings();
  ASSERT_TRUE(found);
  EXPECT_THAT(found->slow, IsEmpty());
  EXPECT_THAT(found->told, IsEmpty());
  EXPECT_EQ(found->summary,
            "the links of 8 nodes were measured in 1 round: the median is 1000 MB/s");
  EXPECT_FALSE(gang.check.take_findings()) << "once";
}

TEST(LinkCheck, ASecondRoundNamesTheNode) {
  MeasuredGang gang(4);
  gang.network->bytes_per_second["n2"] = 5'000'000;
  EXPECT_EQ(gang.run(), 2);
  EXPECT_EQ(gang.network->transfers, 8);
  const auto found = gang.check.take_findings();
  ASSERT_TRUE(found);
  ASSERT_THAT(found->slow, SizeIs(1));
  EXPECT_EQ(found->slow[0].first, 2);
  EXPECT_THAT(found->slow[0].second, HasSubstr("carries 5.00 MB/s from node n1 (worker 1)"));
  EXPECT_THAT(found->summary, HasSubstr("in 2 rounds"));
}

/// The workers of one node share its link: one measures it, all are meant.
TEST(LinkCheck, OneWorkerOfEachNodeMeasuresForAllOfThem) {
  MeasuredGang gang(8, 2);
  gang.network->bytes_per_second["n1"] = 5'000'000;
  gang.run();
  EXPECT_EQ(gang.network->transfers, 2 * 4);
  const auto found = gang.check.take_findings();
  ASSERT_TRUE(found);
  std::vector<int> workers;
  for (const auto& [worker, why] : found->slow) workers.push_back(worker);
  EXPECT_THAT(workers, ElementsAre(2, 3));
}

TEST(LinkCheck, WhereThereIsNoPeerThereIsNothingToMeasure) {
  MeasuredGang alone(1), one_node(4, 4), off(4), older(4);
  off.percent = 0;
  for (auto& report : older.reports) report.link = {};
  for (MeasuredGang* gang : {&alone, &one_node, &off, &older}) {
    EXPECT_EQ(gang->run(), 0);
    EXPECT_FALSE(gang->check.take_findings());
    EXPECT_EQ(gang->network->transfers, 0);
  }
}

TEST(LinkCheck, OfTwoNodesItSaysThatNobodyKnowsWhich) {
  MeasuredGang gang(2);
  gang.run();
  const auto both_same = gang.check.take_findings();
  ASSERT_TRUE(both_same);
  EXPECT_THAT(both_same->told, IsEmpty());
  MeasuredGang crooked(2);
  crooked.measure();
  crooked.obey();
  crooked.reports[0].link_rate.bytes_per_second = 1000;
  crooked.measure();
  crooked.obey();
  crooked.reports[0].link_rate.bytes_per_second = 1000;
  ASSERT_TRUE(crooked.measure());
  const auto found = crooked.check.take_findings();
  ASSERT_TRUE(found);
  EXPECT_THAT(found->slow, IsEmpty());
  ASSERT_FALSE(found->told.empty());
  EXPECT_THAT(found->told[0], HasSubstr("either node may be the cause"));
}

/// A restart in place has the same pods.
TEST(LinkCheck, TheSamePodsAreMeasuredOnce) {
  MeasuredGang gang(4);
  gang.run();
  gang.check.take_findings();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gang.run(), 0);
  EXPECT_EQ(gang.network->transfers, 4);
  EXPECT_EQ(gang.check.order(1).round, 0);
  gang.reports[2].incarnation = 2;
  EXPECT_EQ(gang.run(), 1) << "another pod";
  EXPECT_EQ(gang.network->transfers, 8);
  EXPECT_TRUE(gang.check.take_findings());
}

TEST(LinkCheck, APodThatChangesMeanwhileBeginsItAnew) {
  MeasuredGang gang(4);
  EXPECT_FALSE(gang.measure());
  const int64_t before = gang.check.order(0).round;
  gang.reports[3].incarnation = 2;
  EXPECT_FALSE(gang.measure());
  EXPECT_GT(gang.check.order(0).round, before) << "what belongs to the old round is not taken";
  EXPECT_EQ(gang.run(), 1);
}

TEST(LinkCheck, WhoDoesNotAnswerHoldsNobodyUpForLong) {
  MeasuredGang gang(4);
  gang.mute = {1};
  EXPECT_FALSE(gang.measure());
  gang.obey();
  EXPECT_FALSE(gang.measure());
  gang.now += Time(10'000);
  ASSERT_TRUE(gang.measure());
  const auto found = gang.check.take_findings();
  EXPECT_THAT(found->slow, IsEmpty());
  EXPECT_THAT(found->told,
              ElementsAre("the link from node n1 (worker 1) to node n2 (worker 2) could not be "
                          "measured: the worker did not report in time"));
}

TEST(LinkCheck, WhyALinkWasNotMeasuredIsTold) {
  MeasuredGang gang(3);
  gang.measure();
  gang.obey();
  gang.reports[2].link_rate.bytes_per_second = 0;
  gang.reports[2].link_rate.problem = "10.0.0.1: no connection";
  ASSERT_TRUE(gang.measure());
  EXPECT_THAT(gang.check.take_findings()->told,
              ElementsAre(HasSubstr("could not be measured: 10.0.0.1: no connection")));
}

/// 4,096 workers: what each does does not depend on how many they are.
TEST(LinkCheck, AHugeGangCostsEachWorkerTwoTransfers) {
  MeasuredGang gang(4096);
  gang.network->bytes_per_second["n77"] = 5'000'000;
  EXPECT_EQ(gang.run(), 2);
  EXPECT_EQ(gang.network->transfers, 2 * 4096);
  const auto found = gang.check.take_findings();
  ASSERT_THAT(found->slow, SizeIs(1));
  EXPECT_EQ(found->slow[0].first, 77);
  MeasuredGang mute(4096);
  mute.measure();
  mute.now += 4 * soon_beat(4096) + Time(5000);
  ASSERT_TRUE(mute.measure());
  EXPECT_THAT(mute.check.take_findings()->told, SizeIs(9)) << "not 4,096 lines";
}

}  // namespace
}  // namespace dsj::agent
