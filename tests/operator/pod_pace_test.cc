// The bound of a job's pod creations and deletions, whatever asks for them.
#include "operator/decide/pod_pace.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

TEST(PodPace, AFullBucketGivesItsBurstAtOnceAndThenOnePodAnInterval) {
  const Time now{Seconds(1000)};
  Time full{};
  int made = 0;
  for (; pods_from(full, 4, 1, now) == now; ++made) full = pods_paid(full, 4, 1, now);
  EXPECT_EQ(made, pod_burst(4));
  EXPECT_EQ(pods_from(full, 4, 1, now), now + pod_interval(4));
  EXPECT_EQ(pods_from(full, 4, 3, now), now + 3 * pod_interval(4));
}

/// Whatever is asked for and when: in a time t come at most a burst, one gang, and t's tokens.
TEST(PodPace, NoOrderOfRequestsGetsMore) {
  std::mt19937 random(5);
  for (int story = 0; story < 200; ++story) {
    const int workers = 1 + static_cast<int>(random() % 40);
    const Time begin{Seconds(1'000'000)};
    Time now = begin, full{};
    int64_t made = 0;
    for (int i = 0; i < 300; ++i) {
      now += Milliseconds(random() % 3000);
      const int pods = 1 + static_cast<int>(random() % static_cast<unsigned>(workers));
      if (pods_from(full, workers, pods, now) > now) continue;
      full = pods_paid(full, workers, pods, now);
      made += pods;
      const auto tokens = (now - begin) / pod_interval(workers);
      ASSERT_LE(made, pod_burst(workers) + tokens + 1) << workers;
    }
    EXPECT_GT(made, workers);
  }
}

/// Another controller deletes every pod at once. No rule of restarts knows of that.
TEST(PodPace, PodsThatSomebodyDeletesAtOnceComeAtABoundedRate) {
  World world(quick_spec(1));
  int64_t made = 0;
  std::string seen;
  for (int second = 0; second < 120; ++second) {
    world.now += Seconds(1);
    for (int i = 0; i < 3; ++i) {
      made += std::ssize(world.pass().pods);
      world.o.pods.clear();
    }
    if (world.condition("Scheduled") == "False RateLimited") seen = world.message("Scheduled");
  }
  EXPECT_GE(made, 20);
  EXPECT_LE(made, pod_burst(1) + 120'000 / pod_interval(1).count() + 2);
  EXPECT_NE(seen.find("too often"), std::string::npos) << "the status says why pods wait";
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
}

/// Users do this; nothing waits.
TEST(PodPace, AGangThatIsSuspendedAndResumedThreeTimesWaitsForNothing) {
  World world(quick_spec(8));
  world.to_running();
  for (int i = 0; i < 3; ++i) {
    world.now += Seconds(20);
    world.edit("/suspend", true);
    world.settle();
    world.o.job->agent.stop_step = world.o.job->agent.saved_step = 3 + i;
    world.settle();
    world.end_all(contract::kExitPreempted, contract::kReasonPreempted, 3 + i);
    world.settle();
    world.reap();
    world.settle();
    EXPECT_EQ(world.phase(), "Suspended");
    world.now += Seconds(20);
    world.edit("/suspend", false);
    world.settle();
    EXPECT_EQ(world.o.pods.size(), 8u) << i;
    world.start_attempt();
    EXPECT_EQ(world.phase(), "Running") << i;
  }
}

}  // namespace
}  // namespace dsj::op::testing
