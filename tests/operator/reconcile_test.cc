#include "operator/reconcile.h"

#include <gmock/gmock.h>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Names = std::vector<std::string>;

TEST(Reconcile, AJobFromNothingToComplete) {
  World world;
  const Plan first = world.pass();
  Names made;
  for (const Create& create : World::made(first)) made.push_back(create.kind + " " + create.name);
  const std::string config = "ConfigMap " + world.status().config_map;
  EXPECT_THAT(made, ElementsAre(config, "Service j-worker", "ServiceAccount j-worker",
                                "Role j-worker", "RoleBinding j-worker", "NetworkPolicy j-worker",
                                "Pod j-worker-0-1", "Pod j-worker-1-1"));
  world.settle();
  EXPECT_EQ(world.phase(), "Pending");
  EXPECT_EQ(world.status().workers, "0/2");
  EXPECT_EQ(world.condition("Accepted"), "True ConfigAccepted");
  world.run_pods();
  world.settle();
  EXPECT_EQ(world.phase(), "Starting");
  EXPECT_EQ(world.condition("Scheduled"), "True AllScheduled");
  EXPECT_EQ(world.condition("Initialized"), "False WaitingForGang");
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.condition("Initialized"), "True GangComplete");
  EXPECT_EQ(world.condition("Running"), "True AttemptRunning");
  EXPECT_EQ(world.condition("Progressing"), "True StepsAdvance");
  EXPECT_EQ(world.status().workers, "2/2");
  EXPECT_EQ(world.status().world_size, 2);
  EXPECT_EQ(world.status().zero_stage, 2);
  world.end(world.pod(0), 0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.condition("Complete"), "False NotFinished");  // one is not all
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_THAT(world.pod_names(), UnorderedElementsAre("j-worker-0-1", "j-worker-1-1"));
  world.end(world.pod(1), 0, "Completed", 10);
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_EQ(world.condition("Complete"), "True Completed");
  EXPECT_EQ(world.condition("Running"), "False Finished");
  EXPECT_TRUE(world.status().completion);
  EXPECT_EQ(world.status().restarts.total, 0);
}

TEST(Reconcile, ARefusedJobGetsNothing) {
  World world;
  world.edit("/training/learningRat", 1);
  const Plan plan = world.pass();
  EXPECT_TRUE(World::made(plan).empty());
  EXPECT_EQ(world.phase(), "Refused");
  EXPECT_EQ(world.condition("Accepted"), "False ConfigInvalid");
  EXPECT_THAT(world.message("Accepted"), HasSubstr("did you mean \"learningRate\"?"));
  EXPECT_TRUE(world.o.pods.empty());
  world.edit(quick_spec());
  world.to_running();
}

TEST(Reconcile, ABadEditLeavesTheLastAcceptedSpecInForce) {
  World world;
  world.to_running();
  const auto pods = world.pod_names();
  const std::string revision = world.status().revision;
  world.edit("/deepspeed/config/zero_optimization/stage", 7);
  world.settle();
  EXPECT_EQ(world.condition("Accepted"), "False ConfigInvalid");
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().revision, revision);
  EXPECT_EQ(world.status().observed_generation, 2);
  EXPECT_EQ(world.pod_names(), pods);
  // It can still be suspended, and a pod that fails comes back as it was.
  world.end(world.pod(1), 1, "RankFailed");
  world.settle();
  world.now += Seconds(1);
  world.settle();
  EXPECT_EQ(world.pod(1).revision, revision);
  EXPECT_EQ(world.pod(1).incarnation, 2);
  world.edit("/suspend", true);
  world.settle();
  EXPECT_EQ(world.phase(), "Suspending");
}

TEST(Reconcile, NothingIsWrittenWhenNothingChanged) {
  World world;
  world.to_running();
  world.now += Seconds(20);
  world.o.job->agent.updated = world.now;  // a report of agent 0
  Plan plan = world.pass();
  EXPECT_TRUE(plan.status.is_null());
  EXPECT_TRUE(World::made(plan).empty() && plan.deletes.empty() && plan.events.empty());
  World suspended;
  suspended.edit("/suspend", true);
  suspended.settle();
  EXPECT_EQ(suspended.phase(), "Suspended");
  EXPECT_TRUE(suspended.o.children.empty());
  suspended.now += Seconds(86'400);
  plan = suspended.pass();
  EXPECT_TRUE(plan.status.is_null());
  EXPECT_FALSE(plan.again);
}

TEST(Reconcile, AnotherVersionOfTheOperatorLeavesRunningPodsAlone) {
  World world;
  world.to_running();
  const auto pods = world.pod_names();
  world.o.settings.worker_image = "another";
  world.o.token_keys = "other keys";
  world.settle();
  EXPECT_EQ(world.pod_names(), pods);
  EXPECT_EQ(world.phase(), "Running");
}

TEST(Reconcile, WhatKeepsPodsFromRunningIsShown) {
  World world;
  world.settle();
  world.pod(1).unscheduled = "0/2 nodes are available: persistentvolumeclaim \"data\" not found";
  world.settle();
  EXPECT_EQ(world.condition("Scheduled"), "False Unschedulable");
  EXPECT_THAT(world.message("Scheduled"), HasSubstr("persistentvolumeclaim \"data\" not found"));
  world.pod(1).unscheduled.clear();
  world.run_pods();
  world.pod(0).phase = PodView::Phase::Pending;
  world.pod(0).waiting_reason = "ImagePullBackOff";
  world.pod(0).waiting_message = "Back-off pulling image \"x\"";
  world.settle();
  EXPECT_EQ(world.condition("Initialized"), "False ImagePullBackOff");
  EXPECT_THAT(world.message("Initialized"), HasSubstr("Back-off pulling image"));
  world.pod(0).waiting_reason = "CreateContainerConfigError";
  world.settle();
  EXPECT_EQ(world.condition("Initialized"), "False ContainerCannotStart");
  world.o.refusal = Refusal{"QuotaExceeded", "exceeded quota: q, requested: pods=1"};
  world.settle();
  EXPECT_EQ(world.condition("Scheduled"), "False QuotaExceeded");
  EXPECT_THAT(world.message("Scheduled"), HasSubstr("requested: pods=1"));
}

TEST(Reconcile, ASilentAgentIsShownAsNotProgressing) {
  Json spec = quick_spec();
  spec["liveness"]["stepTimeoutSeconds"] = 120;
  World world(spec);
  world.to_running();
  Plan plan = world.pass();
  ASSERT_TRUE(plan.again);
  EXPECT_EQ(*plan.again - world.now, Seconds(120));
  world.now = *plan.again;
  world.settle();
  EXPECT_EQ(world.condition("Progressing"), "False NoReport");
  world.o.job->agent.updated = world.now;
  world.settle();
  EXPECT_EQ(world.condition("Progressing"), "True StepsAdvance");
}

TEST(Reconcile, ADeletedJobKeepsNothing) {
  World world;
  world.to_running();
  World deleting = world;
  deleting.o.job->deleting = true;
  const Plan plan = deleting.pass();
  EXPECT_EQ(plan.deletes.size(), 2u);
  EXPECT_TRUE(World::made(plan).empty() && plan.status.is_null());
  world.o.job.reset();
  const Plan orphans = reconcile(world.o, world.now);
  EXPECT_EQ(orphans.deletes.size(), 8u);
  EXPECT_TRUE(orphans.status.is_null());
}

TEST(Reconcile, PodsOfAnotherJobOfThatNameAreNotTouched) {
  World world;
  world.settle();
  PodView foreign = world.pod(0);
  foreign.name = "j-worker-0-9";
  foreign.uid = "foreign";
  foreign.owner_uid = "another-job";
  foreign.incarnation = 9;
  world.o.pods.push_back(foreign);
  const Plan plan = world.pass();
  EXPECT_TRUE(plan.deletes.empty());
  EXPECT_TRUE(World::made(plan).empty());
}

TEST(Reconcile, EventsAreToldOncePerTransition) {
  World world;
  std::vector<std::string> told;
  auto pass = [&] {
    for (const Event& event : world.pass().events) told.push_back(event.type + " " + event.reason);
  };
  pass();
  pass();
  world.run_pods();
  world.o.job->agent.attempt = 1;
  pass();
  pass();
  world.end(world.pod(1), 1, "RankFailed");
  pass();
  pass();
  EXPECT_THAT(told,
              ElementsAre("Normal ConfigAccepted", "Normal AttemptRunning", "Warning RankFailed"));
}

}  // namespace
}  // namespace dsj::op::testing
