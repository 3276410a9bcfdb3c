// A gang that is not whole: what a queue holds, and workers with nodes that wait for the others.
#include <gmock/gmock.h>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

Json spec_with(int64_t recovery_seconds, int replicas = 3) {
  Json spec = quick_spec(replicas);
  spec["runPolicy"]["recoveryDeadlineSeconds"] = recovery_seconds;
  return spec;
}

bool holds_nodes(const World& world) {
  return std::ranges::any_of(world.o.pods, [](const PodView& pod) {
    return !pod.ended() && !pod.deleting_from && !pod.node.empty();
  });
}

/// A job whose worker 0 was lost and has no place now.
World lost_worker(int64_t recovery_seconds) {
  World world(spec_with(recovery_seconds));
  world.to_running();
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 0; });
  world.settle();
  world.pod(0).unscheduled = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu";
  world.settle();
  return world;
}

TEST(Recovery, WorkersThatWaitInVainGiveTheirNodesBackAndTryAgain) {
  World world = lost_worker(300);
  EXPECT_TRUE(world.status().incomplete);
  world.now += Seconds(299);
  EXPECT_TRUE(world.pass().deletes.empty());
  const Plan waiting = world.pass();
  ASSERT_TRUE(waiting.again);
  world.now = *waiting.again;
  const Plan release = world.pass();
  EXPECT_EQ(release.deletes.size(), 3u);
  EXPECT_TRUE(World::made(release).empty());
  EXPECT_EQ(world.phase(), "Restarting");
  EXPECT_EQ(world.condition("Restarting"), "True GangReleased");
  EXPECT_THAT(world.message("Restarting"), HasSubstr("worker 0 has no node: 0/3 nodes"));
  EXPECT_EQ(world.status().last_failure["reason"], "GangReleased");
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_FALSE(holds_nodes(world));
  // The agents end on request; nothing of that is charged, and no pod comes before the pause ends.
  const int64_t restarts = world.status().restarts.total;
  world.end_all(contract::kExitPreempted, "Preempted");
  world.settle();
  world.reap();
  world.settle();
  EXPECT_EQ(world.status().restarts.total, restarts);
  EXPECT_TRUE(world.o.pods.empty());
  world.now += Seconds(59);
  world.settle();
  EXPECT_TRUE(world.o.pods.empty());
  world.now += Seconds(1);
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 3u);
  for (const PodView& pod : world.o.pods) EXPECT_FALSE(pod.deleting_from) << pod.name;
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.condition("Restarting"), "False NotRestarting");
  EXPECT_FALSE(world.status().incomplete);
}

TEST(Recovery, ACrashBetweenTheStatusAndTheDeletionsReleasesTheRest) {
  World world = lost_worker(300);
  world.now += Seconds(300);
  const std::vector<PodView> pods = world.o.pods;
  world.pass();
  world.o.pods = pods;  // the operator died before it deleted anything
  const int64_t restarts = world.status().restarts.total;
  const Plan again = world.pass();
  EXPECT_EQ(again.deletes.size(), 3u);
  EXPECT_TRUE(again.status.is_null()) << "released once";
  EXPECT_EQ(world.status().restarts.total, restarts);
}

TEST(Recovery, AGangThatBecameWholeAfterAllIsKept) {
  World world = lost_worker(300);
  world.now += Seconds(300);
  const std::vector<PodView> pods = world.o.pods;
  world.pass();
  world.o.pods = pods;  // the operator died before it deleted anything, and worker 0 came
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.condition("Restarting"), "False NotRestarting");
  for (const PodView& pod : world.o.pods) EXPECT_FALSE(pod.deleting_from) << pod.name;
}

TEST(Recovery, NoNewGangBesideTheRestOfTheOld) {
  World world = lost_worker(300);
  world.edit("/failurePolicy/nodeFailure/forceDeleteAfterSeconds", 600);
  world.now += Seconds(300);
  world.pass();
  world.now += Seconds(120);  // beyond the pause; the pods still end
  world.settle();
  for (const PodView& pod : world.o.pods) EXPECT_TRUE(pod.deleting_from) << pod.name;
  world.reap();
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 3u);
}

TEST(Recovery, ThePauseGrowsWhileNothingChanges) {
  World world = lost_worker(300);
  std::vector<int64_t> pauses;
  for (int round = 0; round < 8; ++round) {
    world.now += Seconds(300);
    world.pass();
    pauses.push_back((*world.status().restarts.not_before - world.now) / Seconds(1));
    world.reap();
    world.now = *world.status().restarts.not_before;
    world.settle();
    world.pod(1).node = "node-1";
    world.settle();
  }
  EXPECT_THAT(pauses, ::testing::ElementsAre(60, 120, 240, 480, 960, 1800, 1800, 1800));
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
}

TEST(Recovery, AGangThatHoldsNothingKeepsItsPlaceInTheSchedulersQueue) {
  World world(spec_with(300));
  world.settle();
  world.now += Seconds(86'400);
  EXPECT_TRUE(world.pass().deletes.empty());
  EXPECT_FALSE(world.status().incomplete);
  world.pod(1).node = "node-1";  // the first node comes now: the others have their time
  world.settle();
  world.now += Seconds(299);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  EXPECT_FALSE(world.pass().deletes.empty()) << "a start is bounded too";
}

TEST(Recovery, TwentyMinutesUnlessTheJobSaysOtherwise) {
  EXPECT_FALSE(judge("j", spec_with(0), std::nullopt, "").accepted);
  World world(quick_spec());
  world.settle();
  world.pod(1).node = "node-1";
  world.settle();
  world.now += Seconds(1199);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  EXPECT_FALSE(world.pass().deletes.empty());
}

TEST(Recovery, ARunningAttemptIsNotInterrupted) {
  World world(spec_with(60));
  world.to_running();
  world.pod(2).deleting_from = world.now + Seconds(630);  // drained: it saves before it goes
  world.settle();
  world.now += Seconds(600);
  world.o.job->agent.updated = world.now;
  EXPECT_TRUE(world.pass().deletes.empty());
}

TEST(QueuedGang, DeadlinesStandStillWhileAQueueHoldsThePods) {
  Json spec = spec_with(60);
  spec["runPolicy"]["startupDeadlineSeconds"] = 100;
  spec["runPolicy"]["activeDeadlineSeconds"] = 1000;
  World world(spec);
  world.settle();
  for (PodView& pod : world.o.pods) pod.gated = true;
  world.settle();
  EXPECT_FALSE(world.status().start);
  world.now += Seconds(7 * 86'400);
  const Plan plan = world.pass();
  EXPECT_FALSE(plan.again);
  EXPECT_TRUE(plan.deletes.empty());
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  EXPECT_EQ(world.condition("Scheduled"), "False Waiting");
  EXPECT_THAT(world.message("Scheduled"), HasSubstr("a queue holds"));
  for (PodView& pod : world.o.pods) pod.gated = false;  // admitted
  world.settle();
  EXPECT_EQ(world.status().start, world.now);
  world.now += Seconds(99);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  World running = world;
  running.start_attempt();
  running.now += Seconds(901);
  running.settle();
  EXPECT_EQ(running.condition("Failed"), "True DeadlineExceeded");
  world.now += Seconds(1);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True StartupDeadlineExceeded");
}

}  // namespace
}  // namespace dsj::op::testing
