// Suspend, resume, scale, deadlines, what is left of a finished job.
#include <gmock/gmock.h>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

bool any_live(const World& world) {
  for (const PodView& pod : world.o.pods) {
    if (!pod.ended() && !pod.deleting_from) return true;
  }
  return false;
}

TEST(Suspend, PodsGoOnlyWhenTheStepIsSaved) {
  World world;
  world.to_running();
  world.o.job->agent.saved_step = 5;
  world.edit("/suspend", true);
  world.settle();
  EXPECT_EQ(world.phase(), "Suspending");
  EXPECT_EQ(world.condition("Suspended"), "False Suspending");
  EXPECT_TRUE(any_live(world));
  world.o.job->agent.stop_step = 8;
  world.settle();
  EXPECT_TRUE(any_live(world)) << "step 8 is not saved yet";
  world.o.job->agent.saved_step = 8;
  world.settle();
  EXPECT_FALSE(any_live(world));
  EXPECT_EQ(world.condition("Suspended"), "False Saved");
  world.reap();
  world.settle();
  EXPECT_EQ(world.phase(), "Suspended");
  EXPECT_EQ(world.condition("Suspended"), "True Suspended");
  EXPECT_EQ(world.message("Suspended"), "step 8 is saved");
  EXPECT_EQ(world.status().replicas, 0);
}

/// Without its Role agent 0 cannot report the saved step, and the job would lose it.
TEST(Suspend, WhatTheJobNeedsIsRestoredWhileItsRanksSave) {
  for (const bool suspends : {true, false}) {
    World world;
    world.to_running();
    suspends ? world.edit("/suspend", true) : world.edit("/workers/replicas", 3);
    world.settle();
    const size_t before = world.o.children.size();
    std::erase_if(world.o.children, [](const ChildView& child) {
      return child.kind == "Role" || child.kind == "ServiceAccount";
    });
    world.settle();
    EXPECT_EQ(world.o.children.size(), before);
  }
}

/// Agent 0 lost its account and cannot report. Another agent's last message says that every rank saved.
TEST(Suspend, WhatAnotherAgentSavedIsNotCalledLost) {
  for (const int64_t attempt : {0, 1}) {
    World world;
    world.to_running();
    world.edit("/suspend", true);
    world.settle();
    world.end(world.pod(1), contract::kExitPreempted, contract::kReasonPreempted, 7);
    world.pod(1).termination->attempt = attempt;  // of another attempt it means nothing
    world.settle();
    EXPECT_EQ(world.condition("Suspended"), "False Suspending");
    world.now += Seconds(3600);
    world.pass();
    EXPECT_EQ(world.condition("Suspended"), attempt == 1 ? "False Saved" : "False NotSaved");
  }
}

TEST(Suspend, EndedAgentsWaitForTheReport) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.settle();
  world.end_all(contract::kExitPreempted, "Preempted", 8);
  world.o.job->agent.saved_step = 5;
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 2u);
  world.o.job->agent.saved_step = 8;
  world.settle();
  EXPECT_TRUE(world.o.pods.empty());
  EXPECT_EQ(world.condition("Suspended"), "True Suspended");
  EXPECT_EQ(world.status().restarts.total, 0);
}

TEST(Suspend, WithoutACheckpointInTimeItSaysSo) {
  Json spec = quick_spec();
  spec["checkpoint"]["onSuspend"]["timeoutSeconds"] = 100;
  World world(spec);
  world.to_running();
  world.edit("/suspend", true);
  Plan plan = world.pass();
  ASSERT_TRUE(plan.again);
  EXPECT_EQ(*plan.again - world.now, Seconds(100));
  world.now += Seconds(99);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  world.settle();
  EXPECT_FALSE(any_live(world));
  world.reap();
  world.settle();
  EXPECT_EQ(world.condition("Suspended"), "True SuspendedWithoutCheckpoint");
}

/// Nobody knows what a program of the user's own saved.
TEST(Suspend, AUsersOwnProgramEndsWithoutACheckpoint) {
  Json spec = quick_spec();
  spec["launcher"] = "Command";
  spec["workers"]["template"]["spec"]["containers"] =
      Json::array({{{"name", "worker"}, {"image", "i"}, {"command", {"train"}}}});
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  world.to_running();
  EXPECT_EQ(world.condition("Progressing"), "Unknown NoSteps");
  world.edit("/suspend", true);
  world.settle();
  EXPECT_TRUE(any_live(world)) << "the ranks have their time";
  EXPECT_EQ(world.condition("Suspended"), "False Suspending");
  world.end_all(contract::kExitPreempted, "StoppedWithoutCheckpoint", 0);
  world.settle();
  world.reap();
  world.settle();
  EXPECT_EQ(world.condition("Suspended"), "True SuspendedWithoutCheckpoint");
  EXPECT_THAT(world.message("Suspended"), HasSubstr("what it saved is not known"));
  world.edit("/suspend", false);
  world.settle();
  world.start_attempt();
  world.end_all(contract::kExitDone, contract::kReasonCompleted, 0);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_EQ(world.message("Complete"), "every rank ended with exit code 0");
}

TEST(Suspend, BeforeTheFirstAttemptThePodsGoAtOnce) {
  World world;
  world.settle();
  world.run_pods();
  world.edit("/suspend", true);
  world.settle();
  EXPECT_FALSE(any_live(world));
  world.reap();
  world.settle();
  EXPECT_EQ(world.condition("Suspended"), "True Suspended");
}

TEST(Suspend, ResumeGoesOnWithNewPodsAndNoRestart) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = 8;
  world.settle();
  world.reap();
  world.settle();
  world.now += Seconds(3600);
  world.edit("/suspend", false);
  world.settle();
  EXPECT_THAT(world.pod_names(), UnorderedElementsAre("j-worker-0-2", "j-worker-1-2"));
  EXPECT_EQ(world.condition("Suspended"), "False Resumed");
  EXPECT_EQ(world.status().start, world.now);
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().restarts.total, 0);
}

TEST(Suspend, AJobThatEndsMeanwhileIsComplete) {
  World world;
  world.to_running();
  world.edit("/suspend", true);
  world.settle();
  world.end_all(0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
}

TEST(Scale, AllStopAtOneStepThenTheNewGangStarts) {
  World world;
  world.to_running();
  const std::string before = world.status().revision;
  world.edit("/workers/replicas", 3);
  Plan plan = world.pass();
  EXPECT_NE(world.status().revision, before);  // agent 0 reads this
  EXPECT_TRUE(World::made(plan).empty());
  world.settle();
  EXPECT_EQ(world.phase(), "Restarting");
  EXPECT_EQ(world.condition("Restarting"), "True SpecChanged");
  EXPECT_EQ(world.o.pods.size(), 2u);
  world.end_all(contract::kExitPreempted, "Preempted", 4);
  world.o.job->agent.saved_step = 4;
  world.settle();
  EXPECT_THAT(world.pod_names(),
              UnorderedElementsAre("j-worker-0-2", "j-worker-1-2", "j-worker-2-2"));
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().world_size, 3);
  EXPECT_EQ(world.status().restarts.total, 0);
  EXPECT_EQ(std::ranges::count(world.o.children, "ConfigMap", &ChildView::kind), 1);
  EXPECT_EQ(world.secrets, std::set<std::string>{"j-dsj-key-2"})
      << "the gang of before had another";
}

TEST(Scale, NoNewPodWhileAnOldOneMayRun) {
  World world(quick_spec(3));
  world.to_running();
  world.edit("/workers/replicas", 1);
  world.settle();
  world.end(world.pod(0), contract::kExitPreempted, "Preempted", 4);
  world.end(world.pod(2), contract::kExitPreempted, "Preempted", 4);
  world.o.job->agent.saved_step = 4;
  world.settle();
  for (const PodView& pod : world.o.pods) EXPECT_EQ(pod.incarnation, 1);
  world.end(world.pod(1), contract::kExitPreempted, "Preempted", 4);
  world.settle();
  EXPECT_THAT(world.pod_names(), UnorderedElementsAre("j-worker-0-2"));
}

TEST(Scale, APolicyAloneRestartsNothing) {
  World world;
  world.to_running();
  const auto pods = world.pod_names();
  world.edit("/runPolicy", {{"ttlSecondsAfterFinished", 5}});
  world.edit("/backoffLimit", 9);
  world.settle();
  EXPECT_EQ(world.pod_names(), pods);
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().restarts.limit, 9);
}

TEST(Deadlines, ActiveDeadlineFailsARunningJob) {
  Json spec = quick_spec();
  spec["runPolicy"]["activeDeadlineSeconds"] = 60;
  World world(spec);
  world.to_running();
  world.now += Seconds(59);
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  const Plan plan = world.pass();
  ASSERT_TRUE(plan.again);
  world.now = *plan.again;
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True DeadlineExceeded");
  EXPECT_FALSE(any_live(world));
}

TEST(Deadlines, StartupDeadlineCountsUntilTheFirstAttempt) {
  Json spec = quick_spec();
  spec["runPolicy"]["startupDeadlineSeconds"] = 60;
  World started(spec);
  started.to_running();
  started.now += Seconds(61);
  started.end(started.pod(0), 1, "RankFailed");
  started.settle();
  EXPECT_NE(started.phase(), "Failed");
  World waiting(spec);
  waiting.settle();
  waiting.now += Seconds(60);
  waiting.settle();
  EXPECT_EQ(waiting.condition("Failed"), "True StartupDeadlineExceeded");
}

TEST(Deadlines, AJobThatHasTrainedIsNotEndedByTheStartupDeadline) {
  Json spec = quick_spec();
  spec["runPolicy"]["startupDeadlineSeconds"] = 60;
  World world(spec);
  world.to_running();
  world.now += Seconds(5 * 86'400);  // it trains for days
  world.o.job->agent.updated = world.now;
  world.end(world.pod(1), 1, "RankFailed");
  world.settle();
  world.now += Seconds(2);
  world.settle();
  ASSERT_EQ(world.pod(1).incarnation, 2);
  world.pod(1).node = "node-1";
  world.pod(1).waiting_reason = "ErrImagePull";  // the registry is away for a moment
  world.settle();
  EXPECT_EQ(world.condition("Initialized"), "False ImagePullBackOff");
  EXPECT_EQ(world.phase(), "Restarting") << "an image that cannot be pulled now is no end";
  world.now += Seconds(61);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  world.pod(1).waiting_reason.clear();
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
}

TEST(Deadlines, AResumedJobIsNotEndedByTheStartupDeadline) {
  Json spec = quick_spec();
  spec["runPolicy"]["startupDeadlineSeconds"] = 60;
  World world(spec);
  world.to_running();
  world.edit("/suspend", true);
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = 8;
  world.settle();
  world.reap();
  world.settle();
  world.edit("/suspend", false);
  world.settle();
  world.now += Seconds(61);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
}

TEST(Finished, CleanPodPolicyAndTimeToLive) {
  struct Case {
    const char* policy;
    int ended_left, running_left;
  };
  for (const Case& c : {Case{"Running", 1, 0}, Case{"All", 0, 0}, Case{"None", 1, 1}}) {
    SCOPED_TRACE(c.policy);
    Json spec = quick_spec();
    spec["runPolicy"] = {{"cleanPodPolicy", c.policy}, {"ttlSecondsAfterFinished", 1000}};
    World world(spec);
    world.to_running();
    world.end(world.pod(1), 2, "BadInput");
    world.settle();
    EXPECT_EQ(world.phase(), "Failed");
    int ended = 0, running = 0;
    for (const PodView& pod : world.o.pods) {
      ended += pod.ended();
      running += !pod.ended() && !pod.deleting_from;
    }
    EXPECT_EQ(ended, c.ended_left);
    EXPECT_EQ(running, c.running_left);
    world.now += Seconds(600);  // the time to save: nothing of a finished job runs on
    world.settle();
    EXPECT_FALSE(any_live(world));
    world.reap();
    world.settle();  // the keys go after the last pod
    world.now += Seconds(399);
    Plan plan = world.pass();
    EXPECT_TRUE(plan.deletes.empty());
    ASSERT_TRUE(plan.again);
    world.now = *plan.again;
    plan = world.pass();
    ASSERT_EQ(plan.deletes.size(), 1u);
    EXPECT_EQ(plan.deletes[0].kind, "DeepSpeedJob");
    EXPECT_EQ(plan.deletes[0].uid, "job-uid");
    EXPECT_FALSE(world.o.job);
  }
}

TEST(Finished, StaysFinishedWhateverIsEdited) {
  World world;
  world.to_running();
  world.end_all(0, "Completed", 10);
  world.settle();
  for (const char* pointer : {"/workers/replicas", "/suspend"}) {
    world.edit(pointer, std::string(pointer) == "/suspend" ? Json(true) : Json(5));
    world.settle();
    EXPECT_EQ(world.phase(), "Complete");
    EXPECT_FALSE(any_live(world));
  }
}

}  // namespace
}  // namespace dsj::op::testing
