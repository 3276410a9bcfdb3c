#include "operator/decide/reconcile.h"

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

// As batch/v1's Job controller with managedBy: no object, no status, no event, in no stage of its life.
TEST(Reconcile, AJobOfAnotherControllerIsLeftAlone) {
  for (const bool deleting : {false, true}) {
    World world;
    world.edit("/managedBy", "kueue.x-k8s.io/multikueue");
    world.o.job->own_status = {{"phase", "Running"}, {"observedGeneration", 1}};
    world.o.job->deleting = deleting;
    const Plan plan = world.pass();
    EXPECT_TRUE(World::made(plan).empty() && plan.updates.empty() && plan.deletes.empty());
    EXPECT_TRUE(plan.status.is_null() && plan.events.empty() && plan.releases.empty());
    EXPECT_FALSE(plan.again);
  }
  World own;
  own.edit("/managedBy", "training.dsj.dev/deepspeedjob-controller");
  own.to_running();
  EXPECT_EQ(own.phase(), "Running");
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

TEST(Reconcile, StragglersAreAnEventOnceAndGoAgain) {
  World world;
  world.to_running();
  world.o.job->agent.updated = world.now;
  world.o.job->agent.stragglers = "rank 1 (worker 1) needs 2 s of a step for itself";
  const Conditions before = world.status().conditions;
  world.settle();
  EXPECT_EQ(world.condition("Progressing"), "True Stragglers");
  const auto told = events_of(before, world.status().conditions);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].type, "Warning");
  EXPECT_EQ(told[0].reason, "Stragglers");
  EXPECT_EQ(told[0].message, "rank 1 (worker 1) needs 2 s of a step for itself");
  world.o.job->agent.stragglers.clear();
  world.settle();
  EXPECT_EQ(world.condition("Progressing"), "True StepsAdvance");
}

TEST(Reconcile, ADamagedCheckpointIsAnEventOncePerSetAside) {
  World world;
  world.to_running();
  std::vector<std::string> told;
  const auto pass = [&] {
    for (const Event& event : world.pass().events) {
      told.push_back(event.type + " " + event.reason + ": " + event.message);
    }
  };
  world.o.job->agent.damaged_attempt = 1;
  world.o.job->agent.damaged = "the run continues from step 3; checkpoint step-6 is passed over";
  pass();
  pass();  // what is in the job's status is all that another operator has
  const std::string first =
      "Warning CheckpointDamaged: the run continues from step 3; checkpoint step-6 is passed over";
  EXPECT_THAT(told, ElementsAre(first));
  EXPECT_EQ(world.status().damage_told, 1);
  world.start_attempt();
  world.o.job->agent.damaged_attempt = 2;
  world.o.job->agent.damaged = "the run continues from step 6; checkpoint step-9 is passed over";
  pass();
  pass();
  EXPECT_EQ(told.size(), 2u);
  EXPECT_THAT(told.back(), HasSubstr("step-9"));
  // An object that lost the agent's part tells nothing anew when the part is back.
  world.o.job->agent.damaged_attempt = 0;
  pass();
  world.o.job->agent.damaged_attempt = 2;
  pass();
  EXPECT_EQ(told.size(), 2u);
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
  EXPECT_EQ(orphans.deletes.size(), 8u) << "two pods, six objects; the collector knows the key";
  EXPECT_TRUE(orphans.status.is_null());
}

ChildView& child_of(World& world, const std::string& kind) {
  const auto found = std::ranges::find(world.o.children, kind, &ChildView::kind);
  EXPECT_NE(found, world.o.children.end()) << kind;
  return *found;
}

TEST(Children, WhatSomebodyChangedIsMended) {
  World world;
  world.to_running();
  for (const char* kind : {"Role", "RoleBinding", "NetworkPolicy", "Service"}) {
    ChildView& child = child_of(world, kind);
    child.content = 7;
    child.resource_version = "41";
    const Plan plan = world.pass();
    ASSERT_EQ(plan.updates.size(), 1u) << kind;
    EXPECT_EQ(plan.updates[0].kind, kind);
    EXPECT_EQ(plan.updates[0].object["metadata"]["resourceVersion"], "41");
    EXPECT_TRUE(World::made(plan).empty() && plan.deletes.empty() && plan.status.is_null());
    EXPECT_TRUE(world.pass().updates.empty()) << kind;
  }
  EXPECT_EQ(world.phase(), "Running");
}

TEST(Children, AnotherServiceAccountIsBoundAndTheOldOneIsNot) {
  World world;
  world.to_running();
  world.edit("/workers/template/spec/serviceAccountName", "own");
  EXPECT_TRUE(world.pass().updates.empty()) << "the ranks that still save need their rights";
  world.end_all(contract::kExitPreempted, "Preempted", 4);
  world.o.job->agent.saved_step = 4;
  Json binding;
  for (int i = 0; i < 5; ++i) {
    for (const Create& update : world.pass().updates) {
      if (update.kind == "RoleBinding") binding = update.object;
    }
  }
  ASSERT_TRUE(binding.is_object());
  EXPECT_EQ(binding["subjects"].size(), 1u);
  EXPECT_EQ(binding["subjects"][0]["name"], "own");
}

TEST(Children, WhatAServerAddsIsNoChange) {
  const Json made = {{"spec",
                      {{"clusterIP", "None"},
                       {"publishNotReadyAddresses", true},
                       {"selector", {{"a", "b"}}},
                       {"ports", Json::array({{{"name", "join"}, {"port", 1}}})}}}};
  Json served = made;
  served["spec"]["ports"][0]["protocol"] = "TCP";
  served["spec"]["ports"][0]["targetPort"] = 1;
  served["spec"]["clusterIPs"] = {"None"};
  served["spec"]["sessionAffinity"] = "None";
  EXPECT_EQ(content_of("Service", made), content_of("Service", served));
  served["spec"]["selector"]["c"] = "d";
  EXPECT_NE(content_of("Service", made), content_of("Service", served));
  EXPECT_EQ(content_of("ConfigMap", made), 0u);
}

TEST(Reconcile, AJobThatIsDeletedWithoutItsChildrenKeepsThem) {
  World world;
  world.to_running();
  world.o.job->deleting = world.o.job->orphaning = true;
  const Plan plan = world.pass();
  EXPECT_TRUE(plan.deletes.empty() && World::made(plan).empty() && plan.status.is_null());
  // The job is gone. What still seems to have an owner is deleted only as it was seen.
  world.o.job.reset();
  world.pod(0).owner_uid.clear();
  for (ChildView& child : world.o.children) child.owner_uid.clear();
  world.pod(1).resource_version = "8";
  const Plan orphans = reconcile(world.o, world.now);
  ASSERT_EQ(orphans.deletes.size(), 1u);
  EXPECT_EQ(orphans.deletes[0].name, "j-worker-1-1");
  EXPECT_EQ(orphans.deletes[0].version, "8");
}

TEST(Reconcile, TheStatusSaysInOneWordWhy) {
  World world;
  world.settle();
  auto why = [&] { return world.phase() + " " + world.status().reason; };
  EXPECT_EQ(why(), "Pending Waiting");
  world.pod(0).unscheduled = "0/3 nodes are available";
  world.settle();
  EXPECT_EQ(why(), "Pending Unschedulable");
  world.pod(0).unscheduled = "";
  world.run_pods();
  world.settle();
  EXPECT_EQ(why(), "Starting WaitingForGang");
  world.start_attempt();
  EXPECT_EQ(why(), "Running ");
  world.edit("/training/maxSteps", "many");
  world.settle();
  EXPECT_EQ(why(), "Running ConfigInvalid");
  world.edit("/training/maxSteps", 10);
  world.settle();
  world.end(world.pod(1), 1, "RankFailed");
  world.settle();
  EXPECT_EQ(why(), "Restarting RankFailed");
  world.edit("/backoffLimit", 0);
  world.settle();
  world.now += Seconds(60);
  world.settle();
  world.start_attempt();
  world.end(world.pod(1), 2, "BadInput");
  world.settle();
  EXPECT_EQ(why(), "Failed BadInput");
}

/// An API server adds the defaults of a newer CRD to every object that it reads.
TEST(Revision, DoesNotFollowDefaultsThatNobodyWrote) {
  World world;
  world.to_running();
  const std::string revision = world.status().revision;
  const auto pods = world.pod_names();
  world.o.job->spec["training"]["seed"] = 42;  // the generation is the same
  world.o.wanted = judge("j", world.o.job->spec, std::nullopt, "");
  ASSERT_NE(world.o.wanted.accepted->revision, revision);
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().revision, revision);
  // An edit of something else stores the defaults; a failed pod comes back as it was.
  world.edit("/backoffLimit", 9);
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.pod_names(), pods);
  EXPECT_EQ(world.status().revision, revision);
  world.edit("/deepspeed/config/zero_optimization/stage", 7);  // refused, then mended
  world.settle();
  world.edit("/deepspeed/config/zero_optimization/stage", 2);
  world.settle();
  EXPECT_EQ(world.status().revision, revision);
  world.end(world.pod(1), 1, "RankFailed");
  world.settle();
  world.now += Seconds(1);
  world.settle();
  EXPECT_EQ(world.pod(1).revision, revision);
  world.start_attempt();
  world.edit("/training/seed", 43);  // this is an edit
  world.settle();
  EXPECT_NE(world.status().revision, revision);
  EXPECT_EQ(world.phase(), "Restarting");
  EXPECT_EQ(world.condition("Running"), "True Stopping");
  EXPECT_TRUE(world.status().spec_hash.empty());
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
