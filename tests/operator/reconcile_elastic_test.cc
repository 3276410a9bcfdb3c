// An elastic job pass by pass: nodes go and come back, its wanted size is scaled, it is suspended.
#include <gmock/gmock.h>

#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Json elastic_spec() {
  Json spec = quick_spec(4);
  spec["deepspeed"]["config"] = {{"train_batch_size", 8}, {"train_micro_batch_size_per_gpu", 1}};
  spec["elastic"] = {{"minReplicas", 2}, {"maxReplicas", 8}};
  return spec;
}

std::vector<std::string> revisions(const World& world) {
  std::vector<std::string> all;
  for (const PodView& pod : world.o.pods) all.push_back(pod.revision);
  return all;
}

int live(const World& world) {
  return static_cast<int>(std::ranges::count_if(
      world.o.pods, [](const PodView& pod) { return !pod.ended() && !pod.deleting_from; }));
}

Json worker_job(const World& world, const Plan& plan, const std::string& revision) {
  for (const Create& create : plan.creates) {
    if (create.name == "j-config-" + revision)
      return Json::parse(create.object["data"][contract::kWorkerJobFile].get<std::string>());
  }
  ADD_FAILURE() << "no ConfigMap of " << revision << " in " << world.status().revision;
  return {};
}

/// All workers but the first `left` lost their nodes and find no others; their pods wait.
void leave(World& world, int left) {
  std::erase_if(world.o.pods, [&](const PodView& pod) { return pod.worker >= left; });
  world.settle();
  for (PodView& pod : world.o.pods) {
    if (pod.node.empty()) pod.unscheduled = "0/" + std::to_string(left) + " nodes are available";
  }
  world.settle();
}

/// To a gang of so many that trains, from a larger one that did.
void shrink_to(World& world, int workers) {
  world.to_running();
  world.o.job->agent.saved_step = 3;
  leave(world, workers);
  world.now += Seconds(60);
  world.settle();
  world.end_all(contract::kExitPreempted, "Preempted", 3);
  world.settle();
  world.reap();
  world.settle();
  world.start_attempt();
}

/// The agents of a running gang save and end, because the status has another revision.
void save_and_end(World& world, int workers, int64_t step) {
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = step;
  for (PodView& pod : world.o.pods) {
    if (pod.worker < workers && !pod.ended() && pod.revision != world.status().revision)
      world.end(pod, contract::kExitPreempted, "Preempted", step);
  }
  world.settle();
  world.reap();
  world.settle();
}

TEST(ElasticJob, BeginsWithWhatIsWanted) {
  World world(elastic_spec());
  const Plan plan = world.pass();
  const std::string revision = world.status().revision;
  EXPECT_THAT(revision, ::testing::EndsWith("-4-0"));
  EXPECT_EQ(plan.pods.size(), 4u);
  EXPECT_EQ(worker_job(world, plan, revision)["replicas"], 4);
  EXPECT_EQ(world.status().elastic->replicas, 4);
  EXPECT_EQ(world.status().world_size, 4);
}

TEST(ElasticJob, GoesOnSmallerWhenNodesAreLost) {
  World world(elastic_spec());
  world.to_running();
  world.o.job->agent.saved_step = 3;
  leave(world, 2);
  EXPECT_EQ(world.o.pods.size(), 4u) << "their successors ask for nodes first";
  world.now += Seconds(59);
  EXPECT_TRUE(world.pass().deletes.empty());
  ASSERT_TRUE(world.pass().again);
  world.now = *world.pass().again;
  const Plan decided = world.pass();
  EXPECT_TRUE(decided.deletes.empty()) << "the status is written before a pod goes";
  ASSERT_EQ(decided.events.size(), 1u);
  EXPECT_EQ(decided.events[0].reason, "Resized");
  EXPECT_THAT(decided.events[0].message,
              HasSubstr("2 workers in place of 4: worker 2 has no node: 0/2 nodes are available"));
  EXPECT_THAT(world.status().revision, ::testing::EndsWith("-2-1"));
  world.settle();
  EXPECT_EQ(world.condition("Restarting"), "True Resized");
  EXPECT_EQ(live(world), 0);
  world.end_all(contract::kExitPreempted, "Preempted", 3);
  world.settle();
  world.reap();
  world.settle();
  EXPECT_EQ(live(world), 2);
  EXPECT_THAT(revisions(world), Each(world.status().revision));
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().workers, "2/2");
  EXPECT_EQ(world.status().world_size, 2);
  EXPECT_EQ(world.status().replicas, 2);
  EXPECT_EQ(world.status().restarts.counted, 0) << "nobody is charged";
}

TEST(ElasticJob, GrowsAtTheNextCheckpointAfterTheNodesAreBack) {
  World world(elastic_spec());
  shrink_to(world, 2);
  EXPECT_EQ(live(world), 2) << "not at once: nodes may flap";
  world.now += Seconds(60);
  Plan plan = world.pass();
  ASSERT_EQ(plan.pods.size(), 2u);
  const std::string small = world.status().revision;
  const std::string large = world.pod(3).revision, spare = world.pod(3).name;
  EXPECT_THAT(large, ::testing::EndsWith("-4-2"));
  EXPECT_EQ(worker_job(world, plan, large)["replicas"], 4);
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().replicas, 2) << "spares are no workers yet";
  EXPECT_EQ(world.status().revision, small);
  world.run_pods();  // there are nodes
  world.settle();
  EXPECT_TRUE(world.status().elastic->growable);
  EXPECT_EQ(world.status().workers, "2/2");
  world.o.job->agent.saved_step = 6;
  plan = world.pass();
  EXPECT_EQ(world.status().revision, large) << "agent 0 reads it and saves one step";
  EXPECT_TRUE(plan.deletes.empty());
  world.settle();
  EXPECT_EQ(live(world), 4) << "nobody goes before the step is saved";
  save_and_end(world, 2, 8);
  EXPECT_EQ(live(world), 4);
  EXPECT_THAT(revisions(world), Each(large));
  EXPECT_EQ(world.pod(3).name, spare) << "the spare is the worker";
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().workers, "4/4");
  EXPECT_EQ(world.status().restarts.counted, 0);
}

/// A gang of `workers` that trains grows to `size`. Its spare's authority is that of all pods afterwards;
/// "" if there was none.
std::string authority_after_growing(World& world, int workers, int size) {
  world.now += Seconds(60);
  world.settle();
  world.run_pods();
  world.settle();
  EXPECT_EQ(live(world), size);
  std::string authority = world.pod(size - 1).authority;
  world.o.job->agent.saved_step = 6;
  world.settle();
  save_and_end(world, workers, 8);
  EXPECT_EQ(live(world), size);
  for (const PodView& pod : world.o.pods) EXPECT_EQ(pod.authority, authority) << pod.name;
  return authority;
}

TEST(ElasticJob, SparesHaveTheKeyOfTheGangThatTheyGrow) {
  World world(elastic_spec());
  shrink_to(world, 2);
  const std::string authority = world.pod(0).authority;
  EXPECT_NE(authority, "");
  EXPECT_EQ(authority_after_growing(world, 2, 4), authority);
  EXPECT_EQ(world.secrets.size(), 1u);
}

TEST(ElasticJob, OneWorkerThatGrowsGetsAKeyWithItsSpare) {
  Json spec = elastic_spec();
  spec["workers"]["replicas"] = 2;
  spec["elastic"] = {{"minReplicas", 1}, {"maxReplicas", 2}};
  World world(spec);
  shrink_to(world, 1);
  ASSERT_EQ(live(world), 1);
  EXPECT_EQ(world.pod(0).authority, "");
  EXPECT_TRUE(world.secrets.empty());
  EXPECT_NE(authority_after_growing(world, 1, 2), "");
  EXPECT_EQ(world.secrets.size(), 1u);
}

TEST(ElasticJob, ASparesNodeIsForTheGangFirst) {
  World world(elastic_spec());
  shrink_to(world, 2);
  world.now += Seconds(60);
  world.settle();
  EXPECT_EQ(live(world), 4);
  std::erase_if(world.o.pods, [](const PodView& pod) { return pod.worker == 1; });
  world.settle();
  world.now += Seconds(2);  // the second of a row of restarts that are not charged
  world.settle();
  EXPECT_EQ(live(world), 2) << "no spare beside a gang that is not whole";
  for (const PodView& pod : world.o.pods) EXPECT_LT(pod.worker, 2);
}

TEST(ElasticJob, ALostSpareIsNoFailure) {
  World world(elastic_spec());
  shrink_to(world, 2);
  world.now += Seconds(60);
  world.settle();
  world.run_pods();
  world.settle();
  const int64_t restarts = world.status().restarts.total;
  world.end(world.pod(3), contract::kExitEnvironment, "NoSpace");
  world.settle();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().restarts.total, restarts);
  EXPECT_EQ(live(world), 2);
  world.o.nodes["node-2"] = {.ready = false, .since = world.now - Seconds(3600)};
  world.now += Seconds(3600);
  world.o.job->agent.updated = world.now;
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
}

TEST(ElasticJob, KubectlScaleAsksAndTheNodesAnswer) {
  World world(elastic_spec());
  world.to_running();
  const std::string four = world.status().revision;
  world.edit("/workers/replicas", 8);
  world.settle();
  EXPECT_EQ(world.status().revision, four) << "the gang trains until there are nodes";
  EXPECT_EQ(live(world), 8);
  world.edit("/workers/replicas", 5);
  world.settle();
  EXPECT_EQ(live(world), 4) << "5 does not fit the batch";
  EXPECT_EQ(world.status().revision, four);
  world.edit("/workers/replicas", 2);
  world.settle();
  EXPECT_THAT(world.status().revision, ::testing::EndsWith("-2-1")) << "smaller at once";
  save_and_end(world, 4, 5);
  EXPECT_EQ(live(world), 2);
}

TEST(ElasticJob, BoundsAloneLeaveTheGangAlone) {
  World world(elastic_spec());
  world.to_running();
  const std::string before = world.status().revision;
  world.edit("/elastic/shrinkAfterSeconds", 5);
  world.settle();
  world.edit("/elastic/minReplicas", 4);
  world.settle();
  EXPECT_EQ(world.status().revision, before);
  EXPECT_EQ(live(world), 4);
}

TEST(ElasticJob, ARefusedEditAsksForNothing) {
  World world(elastic_spec());
  shrink_to(world, 2);
  const std::string before = world.status().revision;
  Json bad = world.o.job->spec;
  bad["workers"]["replicas"] = 8;
  bad["deepspeed"]["config"]["zero_optimization"]["stage"] = 9;
  world.edit(bad);
  world.settle();
  EXPECT_EQ(world.status().revision, before);
  EXPECT_EQ(world.status().elastic->wanted, 4);
}

TEST(ElasticJob, AResumedJobTriesItsLargestSizeAgain) {
  World world(elastic_spec());
  shrink_to(world, 2);
  world.now += Seconds(60);
  world.settle();
  world.edit("/suspend", true);
  world.settle();
  save_and_end(world, 2, 6);
  world.o.job->agent.stop_step = world.o.job->agent.saved_step = 6;
  world.end_all(contract::kExitPreempted, "Preempted", 6);
  world.settle();
  world.reap();
  world.settle();
  EXPECT_EQ(world.phase(), "Suspended");
  EXPECT_TRUE(world.o.pods.empty());
  world.edit("/suspend", false);
  world.settle();
  EXPECT_EQ(live(world), 4);
}

TEST(ElasticJob, BelowItsSmallestSizeItIsReleasedAsAnyOther) {
  World world(elastic_spec());
  world.edit("/elastic/minReplicas", 4);
  world.to_running();
  leave(world, 2);
  world.now += Seconds(1199);
  EXPECT_TRUE(world.pass().deletes.empty());
  world.now += Seconds(1);
  world.pass();
  EXPECT_EQ(world.condition("Restarting"), "True GangReleased");
  EXPECT_EQ(live(world), 0);
}

TEST(ElasticJob, ACompleteSmallJobIsComplete) {
  World world(elastic_spec());
  shrink_to(world, 2);
  world.now += Seconds(60);
  world.settle();
  world.run_pods();
  world.settle();
  for (PodView& pod : world.o.pods) {
    if (pod.revision == world.status().revision) world.end(pod, 0, "Completed", 10);
  }
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_EQ(live(world), 0) << "spares go with it";
}

TEST(ElasticJob, WhatIsDoneIsNotDoneAgainWithFewerWorkers) {
  World world(elastic_spec());
  world.to_running();
  const std::string revision = world.status().revision;
  for (int worker = 1; worker < 4; ++worker) world.end(world.pod(worker), 0, "Completed", 10);
  world.o.nodes["node-0"] = {.ready = false, .since = world.now};
  for (int second = 0; second < 130; second += 10) {
    world.now += Seconds(10);
    world.pass();
  }
  EXPECT_EQ(world.phase(), "Complete");
  EXPECT_EQ(world.status().revision, revision);
}

TEST(ElasticJob, WithoutElasticNothingOfItIsSeen) {
  World world;
  world.settle();
  EXPECT_FALSE(world.status().elastic);
  EXPECT_EQ(world.status().revision.find('-'), std::string::npos);
  EXPECT_FALSE(world.o.job->own_status.contains("elastic"));
}

}  // namespace
}  // namespace dsj::op::testing
