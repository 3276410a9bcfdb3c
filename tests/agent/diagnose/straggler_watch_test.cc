// Who holds up the others, on figures that a test plays.
#include "agent/diagnose/straggler_watch.h"

#include <gmock/gmock.h>

namespace dsj::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Ranks whose steps take as long as the slowest needs, and a collective.
struct PlayedRanks {
  explicit PlayedRanks(size_t count) : own_ms(count, 100.0), paces(count) {}

  /// Steps for `duration`; true: at least once the list changed.
  bool train(Time duration) {
    bool changed = false;
    for (const Time end = now + duration; now < end;) {
      const double longest = *std::ranges::max_element(own_ms) + collective_ms;
      now += Time(static_cast<int64_t>(longest));
      ++step;
      for (size_t i = 0; i < paces.size(); ++i) {
        ++paces[i].steps;
        paces[i].step_us += static_cast<int64_t>(longest * 1000);
        paces[i].own_us += static_cast<int64_t>(own_ms[i] * 1000);
      }
      if (watch.due(now)) changed |= watch.judge(paces, step, now);
    }
    return changed;
  }
  std::vector<int> named() const {
    std::vector<int> ranks;
    for (const auto& one : watch.stragglers()) ranks.push_back(one.rank);
    return ranks;
  }

  StragglerWatch watch;
  std::vector<double> own_ms;
  std::vector<Pace> paces;
  double collective_ms = 20;
  Time now{0};
  int64_t step = 0;
};

constexpr Time kMinute{60'000};

TEST(StragglerWatch, ARankThatNeedsLongerForManyStepsIsNamedAndGoesAgain) {
  PlayedRanks ranks(8);
  EXPECT_FALSE(ranks.train(kMinute));
  ranks.own_ms[5] = 150;
  const int64_t step = ranks.step;
  EXPECT_FALSE(ranks.train(Time(15'000))) << "not for some steps";
  EXPECT_TRUE(ranks.train(kMinute));
  EXPECT_THAT(ranks.named(), ElementsAre(5));
  const Straggler& one = ranks.watch.stragglers()[0];
  EXPECT_NEAR(one.own_seconds, 0.15, 1e-3);
  EXPECT_NEAR(one.others_seconds, 0.1, 1e-3);
  EXPECT_GE(one.since_step, step);
  EXPECT_LE(one.since_step, step + 100);
  EXPECT_FALSE(ranks.train(kMinute)) << "it is told once";
  ranks.own_ms[5] = 101;
  EXPECT_TRUE(ranks.train(kMinute));
  EXPECT_THAT(ranks.named(), ElementsAre());
}

TEST(StragglerWatch, BetweenTheTwoBoundsItStaysWhatItIs) {
  PlayedRanks ranks(4);
  ranks.own_ms[2] = 122;
  EXPECT_FALSE(ranks.train(kMinute)) << "not slow enough to be named";
  ranks.own_ms[2] = 150;
  ranks.train(kMinute);
  ASSERT_THAT(ranks.named(), ElementsAre(2));
  ranks.own_ms[2] = 122;
  EXPECT_FALSE(ranks.train(kMinute)) << "not fast enough to be cleared";
  EXPECT_THAT(ranks.named(), ElementsAre(2));
}

TEST(StragglerWatch, ARankThatIsSlowNowAndThenIsNone) {
  PlayedRanks ranks(4);
  for (int i = 0; i < 20; ++i) {
    ranks.own_ms[1] = i % 4 < 2 ? 100 : 200;  // two rounds, or three with their ends
    ASSERT_FALSE(ranks.train(Time(5000))) << i;
  }
}

TEST(StragglerWatch, WhatSlowsAllRanksNamesNobody) {
  PlayedRanks ranks(4);
  ranks.train(kMinute);
  for (double& own : ranks.own_ms) own = 400;
  EXPECT_FALSE(ranks.train(kMinute));
}

TEST(StragglerWatch, OneStepThatIsLongIsNoStraggler) {
  PlayedRanks ranks(4);
  ranks.own_ms[0] = 60'000;  // the first step compiles, reads, or waits for a disk
  ranks.train(Time(1));
  ranks.own_ms[0] = 100;
  EXPECT_FALSE(ranks.train(kMinute));
  ranks.own_ms[3] = 60'000;
  ranks.train(Time(1));
  ranks.own_ms[3] = 100;
  EXPECT_FALSE(ranks.train(kMinute));
}

TEST(StragglerWatch, WhereTheNetworkDecidesTheStepNobodyHoldsItUp) {
  PlayedRanks ranks(4);
  ranks.own_ms[2] = 150;
  ranks.collective_ms = 2000;
  EXPECT_FALSE(ranks.train(10 * kMinute));
}

TEST(StragglerWatch, MillisecondsOfShortStepsAreNoMatter) {
  PlayedRanks ranks(4);
  for (double& own : ranks.own_ms) own = 10;
  ranks.own_ms[0] = 30;
  ranks.collective_ms = 1;
  EXPECT_FALSE(ranks.train(kMinute));
}

TEST(StragglerWatch, OfTwoRanksTheSlowerOneIsNamed) {
  PlayedRanks ranks(2);
  ranks.own_ms[0] = 180;
  EXPECT_TRUE(ranks.train(kMinute));
  EXPECT_THAT(ranks.named(), ElementsAre(0));
}

TEST(StragglerWatch, ARankAloneOrWithoutFiguresIsNotJudged) {
  PlayedRanks alone(1);
  EXPECT_FALSE(alone.train(kMinute));
  PlayedRanks ranks(3);
  ranks.own_ms[0] = 300;
  for (int i = 0; i < 600; ++i) {
    ranks.train(Time(1));
    ranks.paces[1] = Pace{};
  }
  EXPECT_THAT(ranks.named(), ElementsAre());
}

TEST(StragglerWatch, AnotherAttemptBeginsAnew) {
  PlayedRanks ranks(4);
  ranks.own_ms[2] = 200;
  ranks.train(kMinute);
  ASSERT_THAT(ranks.named(), ElementsAre(2));
  ranks.watch.forget();
  for (Pace& pace : ranks.paces) pace = {};
  EXPECT_THAT(ranks.named(), ElementsAre());
  EXPECT_FALSE(ranks.train(Time(15'000)));
  EXPECT_TRUE(ranks.train(kMinute));
}

TEST(StragglerWatch, FourThousandRanksOfWhichTenAreSlow) {
  PlayedRanks ranks(4096);
  for (size_t i = 0; i < 10; ++i) ranks.own_ms[i * 400] = 140 + static_cast<double>(i);
  ranks.train(kMinute);
  EXPECT_EQ(ranks.named().size(), 10u);
  const std::string text = stragglers_text(ranks.watch.stragglers(), std::vector<int>(512, 8));
  EXPECT_THAT(text, HasSubstr("rank 400 (worker 50) needs 0.141 s of a step for itself, the others "
                              "0.1 s, since step "));
  EXPECT_THAT(text, HasSubstr("; and 2 more"));
  EXPECT_EQ(stragglers_text({}, {1}), "");
}

}  // namespace
}  // namespace dsj::agent
