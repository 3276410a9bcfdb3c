// When silence is a stall: by the time between steps, and by what the ranks show.
#include "agent/diagnose/stall.h"

#include <gtest/gtest.h>

namespace dsj::agent {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Verdict = StallWatch::Verdict;

constexpr Time kConfigured = minutes(30);

RankLook rank(const std::string& phase = "training", int64_t ticks = 100) {
  return {.known = true, .phase = phase, .step = 5, .ticks = ticks};
}

TEST(StallLimit, FollowsTheLongestRecentGap) {
  const std::vector<Time> few(7, seconds(1));
  EXPECT_EQ(stall_limit(few, kConfigured), kConfigured) << "too little is known";
  std::vector<Time> gaps(20, seconds(1));
  EXPECT_EQ(stall_limit(gaps, kConfigured), seconds(30)) << "never shorter";
  gaps[3] = seconds(40);  // an evaluation
  EXPECT_EQ(stall_limit(gaps, kConfigured), seconds(200));
  gaps[4] = minutes(20);
  EXPECT_EQ(stall_limit(gaps, kConfigured), kConfigured) << "never longer";
  EXPECT_EQ(stall_limit(gaps, seconds(5)), seconds(5)) << "what the user says holds";
}

TEST(StallLimit, OnlyAStepIsShort) {
  const std::vector<Time> gaps(20, seconds(1));
  EXPECT_EQ(limit_for({rank(), rank()}, gaps, kConfigured), seconds(30));
  for (const char* phase : {"starting", "reading rows", "evaluating", "saving", "exporting"}) {
    EXPECT_EQ(limit_for({rank(), rank(phase)}, gaps, kConfigured), kConfigured) << phase;
  }
  EXPECT_EQ(limit_for({rank(), RankLook{}}, gaps, kConfigured), kConfigured) << "no flight log";
  EXPECT_EQ(limit_for({}, gaps, kConfigured), kConfigured);
}

TEST(StallLimit, AStoppedProcessNeitherEvaluatesNorSaves) {
  const std::vector<Time> gaps(20, seconds(1));
  RankLook stopped = rank("saving");
  stopped.stopped = true;
  EXPECT_EQ(limit_for({rank("saving"), stopped}, gaps, kConfigured), seconds(30));
  stopped.known = false;
  EXPECT_EQ(limit_for({stopped}, gaps, kConfigured), kConfigured) << "a user's own program";
}

/// A gang with steps of a second, then silence from time 0 on.
struct Silence : testing::Test {
  Silence() {
    for (int i = 0; i < 20; ++i) watch.stepped(seconds(1));
  }
  /// Lets time pass to `end`; each request is answered after 200 ms.
  Verdict pass(Time end, std::vector<RankLook> looks) {
    for (; now <= end; now += Time(100)) {
      if (watch.request() != request) {
        request = watch.request();
        asked = now;
      }
      const bool answered = watch.wants_looks() && now - asked >= Time(200);
      const Verdict verdict =
          watch.judge(now - moved_at, answered ? looks : std::vector<RankLook>(), configured, now);
      if (verdict == Verdict::Moved) moved_at = now;
      if (verdict != Verdict::Wait) return verdict;
    }
    return Verdict::Wait;
  }
  StallWatch watch;
  Time now{0}, asked{0}, moved_at{0}, configured = kConfigured;
  int64_t request = 0;
};

TEST_F(Silence, NobodyIsLookedAtBeforeHalfOfTheTime) {
  EXPECT_EQ(pass(seconds(14), {rank()}), Verdict::Wait);
  EXPECT_EQ(watch.request(), 0);
  EXPECT_EQ(pass(seconds(16), {rank()}), Verdict::Wait);
  EXPECT_GT(watch.request(), 0);
}

TEST_F(Silence, RanksThatDoNotMoveStall) {
  EXPECT_EQ(pass(seconds(29), {rank(), rank()}), Verdict::Wait);
  EXPECT_EQ(pass(seconds(40), {rank(), rank()}), Verdict::Stalled);
  EXPECT_LE(now, seconds(35)) << "named within five seconds";
}

TEST_F(Silence, MovementOfOneRankEndsIt) {
  EXPECT_EQ(pass(seconds(20), {rank(), rank()}), Verdict::Wait);
  EXPECT_EQ(pass(seconds(30), {rank(), rank("training", 101)}), Verdict::Moved);
  EXPECT_EQ(watch.request(), 0);
  EXPECT_EQ(pass(now + seconds(14), {rank()}), Verdict::Wait);
  EXPECT_EQ(watch.request(), 0) << "patience begins anew";
}

TEST_F(Silence, AnEvaluationThatMovesLastsAsLongAsItLikes) {
  int64_t ticks = 100;
  while (now < minutes(120)) {
    const auto looks = {rank("evaluating", ++ticks), rank("training", 7)};
    const Verdict verdict = pass(now + seconds(5), looks);
    ASSERT_NE(verdict, Verdict::Stalled);
  }
}

TEST_F(Silence, ASaveThatDoesNotMoveHasTheConfiguredTime) {
  EXPECT_EQ(pass(minutes(30), {rank("saving"), rank()}), Verdict::Wait);
  EXPECT_EQ(pass(minutes(31), {rank("saving"), rank()}), Verdict::Stalled);
}

TEST_F(Silence, WithoutAnswersTheConfiguredTimeDecides) {
  EXPECT_EQ(pass(minutes(30), {}), Verdict::Wait);
  EXPECT_EQ(pass(minutes(31), {}), Verdict::Stalled);
}

TEST_F(Silence, AShortConfiguredTimeHolds) {
  configured = seconds(4);
  EXPECT_EQ(pass(seconds(4), {rank(), rank()}), Verdict::Wait);
  EXPECT_EQ(pass(seconds(10), {rank(), rank()}), Verdict::Stalled);
  EXPECT_LE(now, seconds(7));
}

TEST_F(Silence, RequestsAreFewAndEachHasANewNumber) {
  configured = minutes(30);
  int64_t last = 0, requests = 0;
  for (; now < minutes(29); now += Time(500)) {
    const auto looks = watch.wants_looks() ? std::vector{rank("saving")} : std::vector<RankLook>();
    watch.judge(now, looks, configured, now);
    requests += watch.request() > last;
    ASSERT_GE(watch.request(), last);
    last = watch.request();
  }
  EXPECT_GT(requests, 0);
  EXPECT_LE(requests, 29 * 60 / 1.5);
}

TEST_F(Silence, OwnSleepIsNobodysSilence) {
  EXPECT_EQ(pass(seconds(20), {rank()}), Verdict::Wait);
  watch.slept(minutes(10));
  now += minutes(10);
  moved_at += minutes(10);
  EXPECT_EQ(pass(now + seconds(5), {rank()}), Verdict::Wait);
  EXPECT_EQ(pass(now + seconds(12), {rank()}), Verdict::Stalled);
}

}  // namespace
}  // namespace dsj::agent
