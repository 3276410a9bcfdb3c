// When a job is complete: whose word counts, for whom, and for how long the others are waited for.
#include <gmock/gmock.h>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

void say_done(World& world, int worker, int64_t attempt) {
  world.end(world.pod(worker), 0, "Completed", 10);
  world.pod(worker).termination->attempt = attempt;
}

/// Its node does not answer, for longer than its pod is waited for.
void lose_node(World& world, int worker) {
  world.o.nodes[world.pod(worker).node] = {.ready = false, .since = world.now};
  world.now += Seconds(60);
}

/// Pods that have ended may be collected at any time: with their node, by the control plane, by
/// hand.
TEST(Complete, IsNotUndoneByTheCollectionOfItsPods) {
  World world(quick_spec(3));
  world.to_running();
  const auto gone = [](int worker) {
    return [worker](const PodView& pod) { return pod.worker == worker; };
  };
  world.end(world.pod(1), 0, "Completed", 10);
  std::erase_if(world.o.pods, gone(1));
  world.end(world.pod(0), 0, "Completed", 10);  // it says so only when every rank is done
  world.settle();
  EXPECT_EQ(world.phase(), "Running") << "worker 2 is still there";
  EXPECT_EQ(world.o.pods.size(), 2u);
  std::erase_if(world.o.pods, gone(0));
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 1u) << "worker 0's words are remembered";
  World failed = world;
  world.end(world.pod(2), 0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_THAT(world.message("Complete"), HasSubstr("2 of 3 pods were gone by then"));
  EXPECT_EQ(world.status().restarts.total, 0);
  // What the last worker says still counts.
  failed.end(failed.pod(2), 1, "RankFailed");
  failed.settle();
  EXPECT_EQ(failed.condition("Complete"), "False NotFinished");
  EXPECT_EQ(failed.status().restarts.total, 1);
  failed.now += Seconds(31);
  failed.settle();
  EXPECT_EQ(failed.pod(0).incarnation, 3);
}

TEST(Complete, AgentZerosLastReportSpeaksForAJobWithoutPods) {
  auto gone = [](auto&& change) {
    World world;
    world.to_running();
    world.o.job->agent.finished = true;
    world.o.pods.clear();  // while no operator looked
    change(world);
    world.settle();
    return world;
  };
  EXPECT_EQ(gone([](World&) {}).phase(), "Complete");
  // Another attempt followed, or another spec: there is more to do.
  EXPECT_EQ(gone([](World& world) {
              world.agent_tells({{"attempt", 1}, {"reason", "RankFailed"}});
            }).phase(),
            "Restarting");
  EXPECT_EQ(gone([](World& world) { world.edit("/training/maxSteps", 20); }).phase(), "Restarting");
  EXPECT_EQ(gone([](World& world) { world.o.job->agent.finished = false; }).phase(), "Restarting");
  World rolling;
  rolling.to_running();
  rolling.o.job->agent.finished = true;
  rolling.edit("/training/maxSteps", 20);
  rolling.pass();  // the old ranks are asked to stop, and are done anyway
  rolling.o.pods.clear();
  rolling.settle();
  EXPECT_EQ(rolling.condition("Complete"), "False NotFinished");
  EXPECT_EQ(rolling.o.pods.size(), 2u);
}

/// Every agent has the word from agent 0, so any of them passes it on.
TEST(Complete, AnyWorkersWordSpeaksForAPodThatIsLostWithItsNode) {
  World world(quick_spec(3));
  world.to_running();
  say_done(world, 1, 1);
  say_done(world, 2, 1);
  lose_node(world, 0);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete") << world.o.job->own_status.dump(1);
  EXPECT_THAT(world.message("Complete"), HasSubstr("1 of 3 pods were gone by then"));
  EXPECT_EQ(world.status().restarts.total, 0) << "nothing was lost";
  EXPECT_EQ(world.o.pods.size(), 2u) << "nobody was made in its place";
}

/// The lost worker 0 is given up first. What is heard then is of an attempt that nobody knew of.
World with_a_late_successor() {
  World world(quick_spec(3));
  world.to_running();
  lose_node(world, 0);
  world.settle();
  EXPECT_EQ(world.pod(0).incarnation, 2);
  EXPECT_EQ(world.status().restarts.attempt, 1);
  world.o.nodes.clear();  // it has found another
  world.run_pods();
  say_done(world, 1, 2);
  say_done(world, 2, 2);
  world.settle();
  return world;
}

TEST(Complete, ASuccessorThatCameTooLateIsNotWaitedForForEver) {
  World world = with_a_late_successor();
  EXPECT_EQ(world.status().completed, 2);
  EXPECT_EQ(world.condition("Complete"), "False NotFinished") << "it may be of that attempt";
  EXPECT_EQ(world.o.pods.size(), 3u) << "who is done is not made anew";
  const Plan waiting = world.pass();
  ASSERT_TRUE(waiting.again);
  world.now = *waiting.again;
  EXPECT_LE(world.now, *world.status().completed_since + Seconds(120));
  world.settle();
  EXPECT_EQ(world.condition("Complete"), "True Completed");
  EXPECT_THAT(world.message("Complete"), HasSubstr("1 of 3 pods had not ended by then"));
  EXPECT_TRUE(world.pod(0).deleting_from);
}

/// The successors ran to their end while no operator looked: the pass that sees them first ends the job.
TEST(Complete, PodsOfTheSpecBeforeDoNotStay) {
  World world;
  world.to_running();
  world.edit("/training/maxSteps", 20);
  world.pass();
  for (const int worker : {0, 1}) world.end(world.pod(worker), 0, "Completed", 10);
  world.pass();
  ASSERT_EQ(world.o.pods.size(), 4u);
  world.run_pods();
  for (const int worker : {0, 1}) say_done(world, worker, 2);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_EQ(world.o.pods.size(), 2u);
  for (const PodView& pod : world.o.pods) EXPECT_EQ(pod.revision, world.status().revision);
}

TEST(Complete, HowItEndsIsHeardWithinThatTime) {
  World done = with_a_late_successor();
  done.end(done.pod(0), 0, "Completed", 10);
  done.settle();
  EXPECT_EQ(done.phase(), "Complete");
  World failed = with_a_late_successor();
  failed.end(failed.pod(0), 1, "RankFailed");
  failed.settle();
  failed.now += Seconds(31);
  failed.settle();
  EXPECT_EQ(failed.condition("Complete"), "False NotFinished");
  for (int worker = 0; worker < 3; ++worker) EXPECT_FALSE(failed.pod(worker).ended()) << worker;
}

TEST(Complete, AWorkerThatCameAfterTheEndHasNothingToDo) {
  World world(quick_spec(3));
  world.to_running();
  say_done(world, 0, 1);
  say_done(world, 1, 0);  // it joined when all was done, and was told so
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 3u);
  say_done(world, 2, 1);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
}

TEST(Complete, WhatIsDoneIsInTime) {
  World world;
  world.edit("/runPolicy/activeDeadlineSeconds", 100);
  world.to_running();
  world.now += Seconds(99);
  say_done(world, 0, 1);
  world.settle();
  world.now += Seconds(2);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished") << "worker 1 takes its time to end";
  say_done(world, 1, 1);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
}

TEST(Complete, TheTimeToEndCountsFromTheWordOfThatAttempt) {
  World world = with_a_late_successor();
  const auto first = world.status().completed_since;
  ASSERT_TRUE(first);
  world.now += Seconds(30);
  world.settle();
  EXPECT_EQ(world.status().completed_since, first);
  // A later attempt runs after all: that word is history.
  for (int worker = 1; worker < 3; ++worker) {
    std::erase_if(world.o.pods, [&](const PodView& pod) { return pod.worker == worker; });
  }
  world.o.job->agent.attempt = 3;
  world.settle();
  EXPECT_FALSE(world.status().completed_since);
  EXPECT_EQ(world.condition("Complete"), "False NotFinished");
}

}  // namespace
}  // namespace dsj::op::testing
