// What anybody who may patch a job's status can write into it, and what must not follow. drawn_job.h has the rule; what
// it found once has its name here.
#include <gmock/gmock.h>

#include <limits>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::ElementsAre;

/// Its pod is gone, and after the restart's pause there is another.
void replace(World& world, int worker) {
  const std::string name = world.pod(worker).name;
  std::erase_if(world.o.pods, [&](const PodView& pod) { return pod.name == name; });
  world.settle();
  world.now += Seconds(400);
  world.settle();
}

/// Two workers run, the status is patched, and worker 1's pod fails again and again.
TEST(PatchedStatus, NoNumberGivesTwoPodsOneName) {
  for (const int64_t number :
       {int64_t{-1}, int64_t{0}, kPodNumberMax - 1, kPodNumberMax, kPodNumberMax + 1,
        int64_t{1'000'000'000'000'000}, std::numeric_limits<int64_t>::max()}) {
    World world;
    world.edit("/backoffLimit", 100);
    world.to_running();
    world.o.job->own_status["incarnation"] = number;
    std::set<std::string> names;
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(names.insert(world.pod(1).name).second) << number << ": " << world.pod(1).name;
      world.end(world.pod(1), 1, "RankFailed");
      world.settle();
      world.now += Seconds(400);
      world.settle();
      ASSERT_FALSE(world.pod(1).ended()) << number << ": " << world.o.job->own_status.dump(1);
      world.start_attempt();
      EXPECT_EQ(world.phase(), "Running") << number;
    }
  }
}

/// Agent 0 takes a worker with a lower number for one that was replaced.
TEST(PatchedStatus, ALowNumberMakesNoPodThatItsGangTakesForAnOldOne) {
  World world;
  world.to_running();
  for (int i = 0; i < 4; ++i) {
    replace(world, 1);
    world.start_attempt();
  }
  const int64_t before = world.pod(1).incarnation;
  ASSERT_GT(before, 4);
  for (PodView& pod : world.o.pods) pod.incarnation = before;
  world.o.job->own_status.erase("incarnation");
  replace(world, 1);
  EXPECT_GT(world.pod(1).incarnation, before);
}

/// Drawn: a pod's old end was heard again in each pass, and each pass took another number for the pods to come.
TEST(PatchedStatus, AnAttemptThatIsSaidToBeCompleteWithoutItsPodsLeavesPassesAtRest) {
  World world;
  world.to_running();
  world.end(world.pod(1), contract::kExitPreempted, "Preempted");
  world.settle();
  world.start_attempt();
  world.end(world.pod(1), contract::kExitPreempted, "Preempted");
  world.pass();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 0; });
  ++world.o.job->agent.attempt;
  world.o.job->own_status["completedAttempt"] = world.o.job->agent.attempt;
  world.o.job->own_status["restarts"]["notBefore"] = to_text(world.now + Seconds(100));
  world.settle();
  const int64_t before = world.status().incarnation;
  world.now += Seconds(1);
  world.settle();
  EXPECT_EQ(world.status().incarnation, before);
}

}  // namespace
}  // namespace dsj::op::testing
