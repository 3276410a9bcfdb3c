// What Kueue must be told, by what a real one was seen to do (tests/cluster/kueue_check.py): it keeps each of its pods by a
// finalizer, and the quota of the group with them, until another pod of the group comes or the group is over.
#include <gmock/gmock.h>

#include "operator/observe/kueue.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::UnorderedElementsAre;

Json queued_spec() {
  Json spec = quick_spec(2);
  spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  return spec;
}

/// As Kueue's webhook does it, for pods that are new.
void enter_queue(World& world) {
  for (PodView& pod : world.o.pods)
    if (pod.node.empty() && pod.finalizers.empty() && !pod.deleting_from) {
      pod.finalizers = {kKueueFinalizer};
      pod.gated = true;
    }
}

void admit(World& world) {
  for (PodView& pod : world.o.pods) pod.gated = false;
}

class KueueGroup : public ::testing::Test {
 protected:
  KueueGroup() : world_(queued_spec()) {
    world_.settle();
    enter_queue(world_);
    world_.settle();
  }
  void train() {
    admit(world_);
    world_.start_attempt();
  }
  /// Both workers have lost their pods, so Kueue has finished the group. Their successors wait in the next one.
  void finish_group() {
    train();
    world_.end(world_.pod(1), 1, "RankFailed");
    world_.end(world_.pod(0), 86, "PeerLost");
    world_.settle();
    ASSERT_THAT(over(), ElementsAre("j-kueue-1"));
    for (PodView& pod : world_.o.pods) pod.finalizers.clear();
    for (int worker : {0, 1}) ASSERT_EQ(world_.pod(worker).gang, "j-kueue-2");
    enter_queue(world_);
  }
  /// The successor's name was taken: a creation without an answer had made it, and in the group before.
  PodView& make_late(int worker) {
    world_.pod(worker).gang = "j-kueue-1";
    return world_.pod(worker);
  }
  std::vector<std::string> deleted() {
    std::vector<std::string> names;
    for (const Delete& entry : world_.pass().deletes)
      if (entry.kind == "Pod") names.push_back(entry.name);
    return names;
  }
  /// All passes of a minute that nobody else changes anything in.
  void wait() {
    world_.settle();
    world_.now += Seconds(60);
    world_.settle();
  }
  /// Groups that Kueue was told to be over.
  std::set<std::string> over() const {
    std::set<std::string> names;
    for (const PodView& pod : world_.o.pods)
      if (pod.group_over) names.insert(pod.gang);
    return names;
  }
  World world_;
};

TEST_F(KueueGroup, ThatLostAllItsPodsIsOver) {
  train();
  world_.end(world_.pod(1), 1, "RankFailed");
  world_.end(world_.pod(0), 86, "PeerLost");
  world_.settle();
  world_.now += Seconds(600);
  world_.settle();
  enter_queue(world_);
  EXPECT_THAT(over(), ElementsAre("j-kueue-1"));
  EXPECT_EQ(world_.pod(0).gang, "j-kueue-2");
  EXPECT_EQ(world_.status().restarts.counted, 1);
}

TEST_F(KueueGroup, GoesOnWithAWorkerThatIsMadeAnew) {
  train();
  world_.end(world_.pod(1), 1, "RankFailed");
  world_.settle();
  world_.now += Seconds(600);
  world_.settle();
  EXPECT_EQ(world_.pod(1).incarnation, 2);
  EXPECT_EQ(world_.pod(1).gang, "j-kueue-1");
  EXPECT_THAT(over(), IsEmpty()) << "its quota is still needed";
}

TEST_F(KueueGroup, OfAFailedJobIsOverThoughItsPodsStay) {
  Json spec = queued_spec();
  spec["backoffLimit"] = 0;
  world_.edit(spec);
  world_.settle();
  train();
  world_.end(world_.pod(1), 1, "RankFailed");
  world_.end(world_.pod(0), 86, "PeerLost");
  world_.settle();
  EXPECT_EQ(world_.phase(), "Failed");
  EXPECT_FALSE(world_.o.pods.empty()) << "for their logs";
  EXPECT_THAT(over(), ElementsAre("j-kueue-1"));
}

TEST_F(KueueGroup, IsLeftByASuspensionInTheQueue) {
  world_.edit("/suspend", true);
  world_.settle();
  EXPECT_THAT(world_.pod_names(), IsEmpty()) << "no kubelet will end them";
  EXPECT_EQ(world_.phase(), "Suspended");
}

TEST_F(KueueGroup, IsLeftByASuspendedGang) {
  train();
  world_.edit("/suspend", true);
  world_.settle();
  world_.end_all(87, "Preempted", 3);
  world_.o.job->agent.saved_step = 3;
  world_.settle();
  EXPECT_THAT(over(), ElementsAre("j-kueue-1"));
  for (PodView& pod : world_.o.pods) pod.finalizers.clear();  // so Kueue finishes the group
  world_.reap();
  world_.settle();
  EXPECT_EQ(world_.phase(), "Suspended");
}

TEST_F(KueueGroup, IsLeftByADeletedJob) {
  world_.o.job->deleting = true;
  world_.settle();
  EXPECT_THAT(world_.pod_names(), IsEmpty());
}

TEST_F(KueueGroup, IsLeftByPodsWithoutAJob) {
  world_.o.job.reset();
  for (int i = 0; i < 3; ++i) world_.pass();
  EXPECT_THAT(world_.pod_names(), IsEmpty());
}

TEST_F(KueueGroup, IsNotTouchedWhenTheJobIsOrphaned) {
  world_.o.job->deleting = world_.o.job->orphaning = true;
  for (PodView& pod : world_.o.pods) pod.deleting_from = world_.now;
  EXPECT_THAT(world_.pass().releases, IsEmpty());
}

TEST_F(KueueGroup, GivesUpThePodOfALostNode) {
  train();
  world_.o.nodes["node-0"] = {.ready = true};
  world_.o.nodes["node-1"] = {.ready = false, .since = world_.now};
  world_.settle();
  world_.now += Seconds(3600);
  world_.settle();
  EXPECT_EQ(world_.pod(1).incarnation, 2) << "its successor needs the other to be gone";
  EXPECT_THAT(over(), IsEmpty());
}

TEST_F(KueueGroup, KeepsWhatAnotherFinalizerHolds) {
  world_.pod(1).finalizers = {"mine", kKueueFinalizer};
  world_.edit("/suspend", true);
  world_.settle();
  EXPECT_THAT(world_.pod_names(), ElementsAre("j-worker-1-1"));
  EXPECT_THAT(world_.pod(1).finalizers, ElementsAre("mine"));
}

TEST_F(KueueGroup, ThatIsEvictedBeforeItTrainedIsNotCharged) {
  admit(world_);
  world_.run_pods();
  for (PodView& pod : world_.o.pods) {  // deleted by Kueue; their containers had not begun
    pod.phase = PodView::Phase::Failed;
    pod.conditions = {kKueueTermination};
    pod.deleting_from = world_.now;
  }
  world_.settle();
  world_.now += Seconds(600);
  world_.settle();
  EXPECT_EQ(world_.status().restarts.counted, 0);
  EXPECT_EQ(world_.status().restarts.total, 1);
  EXPECT_EQ(world_.pod(0).gang, "j-kueue-2");
}

// A finished group is never admitted again.

TEST_F(KueueGroup, ThatIsFinishedIsLeftByThePodsThatWaitInIt) {
  finish_group();
  make_late(0);
  make_late(1);
  EXPECT_THAT(deleted(), UnorderedElementsAre("j-worker-0-2", "j-worker-1-2"));
  wait();
  for (int worker : {0, 1}) {
    EXPECT_EQ(world_.pod(worker).name, "j-worker-" + std::to_string(worker) + "-3");
    EXPECT_EQ(world_.pod(worker).gang, "j-kueue-3");
  }
  EXPECT_EQ(world_.status().restarts.counted, 1) << "that of the rank that failed";
  EXPECT_EQ(world_.status().restarts.total, 1);
  enter_queue(world_);
  EXPECT_THAT(deleted(), IsEmpty()) << "the new group waits for quota";
}

TEST_F(KueueGroup, ThatIsFinishedGetsNoSecondPodBesideTheOneThatWaits) {
  finish_group();
  make_late(1);
  std::erase_if(world_.o.pods, [](const PodView& pod) { return pod.name == "j-worker-0-2"; });
  wait();
  EXPECT_EQ(world_.pod(0).gang, "j-kueue-3");
  EXPECT_EQ(world_.pod(1).gang, "j-kueue-3");
  EXPECT_EQ(world_.status().restarts.total, 1);
}

TEST_F(KueueGroup, IsLeftByAllIfAnotherOfTheGangWaitsInAFinishedOne) {
  finish_group();
  make_late(1);
  wait();
  EXPECT_EQ(world_.pod(0).gang, "j-kueue-3");
  EXPECT_EQ(world_.pod(1).gang, "j-kueue-3") << "a gang in two groups is never admitted";
}

TEST_F(KueueGroup, IsKeptWhileOneOfItsPodsIsAdmitted) {
  finish_group();
  make_late(0).gated = false;
  make_late(1);
  EXPECT_THAT(deleted(), IsEmpty()) << "so Kueue has not finished it";
  world_.pod(0).node = "node-0";
  EXPECT_THAT(deleted(), IsEmpty());
}

TEST_F(KueueGroup, IsKeptWhileItWaitsForQuota) {
  finish_group();
  EXPECT_THAT(deleted(), IsEmpty()) << "another group is over";
  for (PodView& pod : world_.o.pods) pod.group_over = false;
  make_late(0);
  make_late(1);
  EXPECT_THAT(deleted(), IsEmpty());
}

TEST_F(KueueGroup, IsKeptThoughTheTemplateCallsAllItsPodsNotRetriable) {
  for (PodView& pod : world_.o.pods) pod.group_over = true;
  EXPECT_THAT(deleted(), IsEmpty()) << "none of them has ended";
}

TEST_F(KueueGroup, OfNoNameIsNoneToLeave) {
  finish_group();
  for (PodView& pod : world_.o.pods) pod.gang.clear();
  EXPECT_THAT(deleted(), IsEmpty()) << "a gate of the user's holds them";
}

TEST_F(KueueGroup, ThatIsFinishedIsLeftThoughAPodThatGoesHasANode) {
  finish_group();
  PodView& going = make_late(0);
  going.gated = false;
  going.node = "node-0";
  going.deleting_from = world_.now;
  make_late(1);
  EXPECT_THAT(deleted(), ElementsAre("j-worker-1-2"));
  world_.settle();
  EXPECT_EQ(world_.pod(1).incarnation, 1) << "a new pod would join the group of the one that goes";
  world_.end(world_.pod(0), 87, "Preempted");
  wait();
  EXPECT_EQ(world_.pod(0).gang, "j-kueue-3");
  EXPECT_EQ(world_.pod(1).gang, "j-kueue-3");
}

TEST_F(KueueGroup, ThatIsFinishedGetsNoPodWhileOneThatWaitedThereGoes) {
  finish_group();
  make_late(0).finalizers.push_back("mine");
  make_late(1);
  world_.settle();
  EXPECT_EQ(world_.pod(0).incarnation, 2);
  EXPECT_EQ(world_.pod(1).incarnation, 1);
  world_.pod(0).finalizers.clear();
  world_.reap();
  wait();
  EXPECT_EQ(world_.pod(0).gang, "j-kueue-3");
  EXPECT_EQ(world_.pod(1).gang, "j-kueue-3");
}

TEST_F(KueueGroup, IsKeptThoughAPodOfAFinishedOneStillGoes) {
  finish_group();
  PodView next = world_.pod(1);
  next.name = next.uid = "j-worker-1-3";
  next.incarnation = 3;
  PodView& going = make_late(1);
  going.finalizers = {"mine"};
  going.deleting_from = world_.now;
  world_.o.pods.push_back(next);
  EXPECT_THAT(deleted(), IsEmpty());
}

TEST_F(KueueGroup, ThatIsFinishedIsRememberedByItsEndedPodsUntilAllHaveLeftIt) {
  finish_group();
  for (PodView& pod : world_.o.pods)
    if (pod.ended()) world_.end(pod, 87, "Preempted");  // not kept for its logs
  make_late(0).finalizers.push_back("mine");
  make_late(1);
  world_.settle();
  EXPECT_THAT(world_.pod_names(), IsSupersetOf({"j-worker-0-1", "j-worker-1-1", "j-worker-0-2"}));
}

TEST_F(KueueGroup, ThatIsLeftBeginsANewTimeForTheNextToBecomeWhole) {
  train();
  world_.end(world_.pod(1), 1, "RankFailed");
  world_.settle();
  ASSERT_TRUE(world_.status().incomplete) << "worker 0 holds a node and waits";
  world_.end(world_.pod(0), 86, "PeerLost");
  for (PodView& pod : world_.o.pods) pod.group_over = pod.ended();
  enter_queue(world_);
  ASSERT_THAT(deleted(), ElementsAre("j-worker-1-2"));
  EXPECT_FALSE(world_.status().incomplete);
}

TEST(PodView, HasWhatKueueWrote) {
  const auto pod = pod_view(Json::parse(
      R"({"metadata": {"name": "j-worker-0-1", "finalizers": ["a", "kueue.x-k8s.io/managed"],
    "annotations": {"kueue.x-k8s.io/retriable-in-group": "false"}}})"));
  ASSERT_TRUE(pod);
  EXPECT_THAT(pod->finalizers, ElementsAre("a", kKueueFinalizer));
  EXPECT_TRUE(pod->group_over);
}

}  // namespace
}  // namespace dsj::op::testing
