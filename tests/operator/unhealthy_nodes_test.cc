// Nodes that are unfit: the list itself, and what a pass makes of pods that say so.
#include "operator/observe/unhealthy_nodes.h"

#include <gmock/gmock.h>

#include "job/node_health.h"
#include "job/spec/pod_policies.h"
#include "operator/observe/lost_nodes.h"
#include "tests/operator/rendered_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Time kNow{Seconds(1'767'225'600)};

TEST(UnhealthyNodes, AreForgottenAfterTheirTime) {
  std::vector<UnhealthyNode> nodes;
  EXPECT_EQ(forget_unhealthy(nodes, Seconds(600), kNow), std::nullopt);
  note_unhealthy(nodes, "a", "why", kNow);
  note_unhealthy(nodes, "b", "why", kNow + Seconds(100));
  EXPECT_EQ(forget_unhealthy(nodes, Seconds(600), kNow + Seconds(599)), kNow + Seconds(600));
  EXPECT_THAT(names_of(nodes), ElementsAre("a", "b"));
  EXPECT_EQ(forget_unhealthy(nodes, Seconds(600), kNow + Seconds(600)), kNow + Seconds(700));
  EXPECT_THAT(names_of(nodes), ElementsAre("b"));
}

TEST(UnhealthyNodes, TheListIsBounded) {
  std::vector<UnhealthyNode> nodes;
  for (int i = 0; i < 100; ++i) {
    note_unhealthy(nodes, "n" + std::to_string(i), std::string(5000, 'x'), kNow + Seconds(i));
  }
  EXPECT_EQ(nodes.size(), kUnhealthyMax);
  EXPECT_EQ(nodes.back().name, "n99");
  EXPECT_LE(nodes[0].message.size(), 300u);
  EXPECT_GE(pause_after(nodes, {"n99"}), Seconds(60)) << "it forgets: others may be found again";
}

/// A status with half a character in it could not be sent, and the job would stand still.
TEST(UnhealthyNodes, AMessageIsCutBetweenCharacters) {
  std::string message;
  for (int i = 0; i < 200; ++i) message += "\xc3\xbc";
  for (int shift = 0; shift < 2; ++shift, message.insert(0, "x")) {
    std::vector<UnhealthyNode> nodes;
    note_unhealthy(nodes, "n", message, kNow);
    EXPECT_GE(nodes[0].message.size(), 299u);
    EXPECT_NO_THROW((void)Json(nodes[0].message).dump()) << shift;
  }
}

TEST(UnhealthyNodes, ThePauseDoublesOnlyWhenANodeIsFoundAgain) {
  std::vector<UnhealthyNode> nodes;
  note_unhealthy(nodes, "a", "why", kNow);
  note_unhealthy(nodes, "b", "why", kNow);
  EXPECT_EQ(pause_after(nodes, {"a", "b"}), Seconds(0));
  Seconds last(0);
  for (int i = 0; i < 20; ++i) {
    note_unhealthy(nodes, "a", "why", kNow + Seconds(i));
    const Seconds pause = pause_after(nodes, {"a"});
    EXPECT_GE(pause, last);
    last = pause;
  }
  EXPECT_EQ(last, Seconds(300));
  EXPECT_EQ(pause_after(nodes, {"b"}), Seconds(0));
}

TEST(UnhealthyNodes, ThePodsListIsReadAsItWasWritten) {
  EXPECT_EQ(avoids_text({"b", "a"}), "a,b");
  EXPECT_THAT(avoids_from_text("a,b"), ElementsAre("a", "b"));
  EXPECT_TRUE(avoids_from_text("").empty());
}

// ---- what a pass does

void unfit(World& world, int worker, const std::string& node = "") {
  PodView& pod = world.pod(worker);
  if (!node.empty()) pod.node = node;
  pod.created = world.now;
  pod.phase = PodView::Phase::Running;
  world.end(pod, contract::kExitUnhealthyNode, contract::kReasonUnhealthyNode);
  pod.termination->message = "the node's clock is 90 s behind the API server's";
  pod.termination->attempt.reset();
}

TEST(UnhealthyNodePass, ThePodMovesUnchargedAndTheOthersStay) {
  World world(quick_spec(3));
  world.settle();
  world.run_pods();
  const std::string survivor = world.pod(0).uid;
  unfit(world, 2);
  const Plan plan = world.pass();
  ASSERT_FALSE(plan.events.empty());
  const auto event = std::ranges::find(plan.events, contract::kReasonUnhealthyNode, &Event::reason);
  ASSERT_NE(event, plan.events.end());
  EXPECT_THAT(event->message, HasSubstr("90 s behind"));
  EXPECT_THAT(event->message, HasSubstr("node node-2"));
  world.settle();
  EXPECT_EQ(world.pod(0).uid, survivor);
  EXPECT_EQ(world.pod(2).name, "j-worker-2-2");
  EXPECT_EQ(world.pod(2).avoids, "node-2");
  const OwnStatus status = world.status();
  EXPECT_EQ(status.restarts.counted, 0);
  EXPECT_EQ(status.restarts.not_before, std::nullopt);
  EXPECT_EQ(status.last_failure["node"], "node-2");
  ASSERT_EQ(status.unhealthy.size(), 1u);
  EXPECT_EQ(status.unhealthy[0].name, "node-2");
  const std::string affinity = pod_of(world, 1)["spec"]["affinity"].dump();
  EXPECT_THAT(affinity, HasSubstr(R"("operator":"NotIn","values":["node-2"])"));
}

TEST(UnhealthyNodePass, ItsVictimsAreNotChargedAndNothingEnds) {
  World world(quick_spec(3));
  world.to_running();
  for (int round = 1; round <= 5; ++round) {  // backoffLimit is 3
    unfit(world, 2, "n" + std::to_string(round));
    for (const int worker : {0, 1})
      world.end(world.pod(worker), contract::kExitPeerLost, "PeerLost");
    world.settle();
    world.start_attempt();
    ASSERT_EQ(world.condition("Failed"), "False NotFinished") << round;
  }
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.status().unhealthy.size(), 5u);
}

/// Two pods that end so in different passes are both heard, though one restart is charged.
TEST(UnhealthyNodePass, EveryNodeIsHeard) {
  World world(quick_spec(3));
  world.settle();
  world.run_pods();
  unfit(world, 1);
  world.settle();
  unfit(world, 2);
  world.settle();
  EXPECT_THAT(names_of(world.status().unhealthy), ElementsAre("node-1", "node-2"));
}

/// On a cluster of one node the job must not wait forever for a node that nobody keeps it from.
TEST(UnhealthyNodePass, APodThatWaitsIsMadeAnewWhenTheNodeMayBeTriedAgain) {
  World world(quick_spec(1));
  world.settle();
  world.run_pods();
  unfit(world, 0, "only");
  world.settle();
  const std::string waits = world.pod(0).name;
  EXPECT_EQ(world.pod(0).avoids, "only");
  world.pod(0).unscheduled = "0/1 nodes are available";
  const Plan rest = world.pass();
  ASSERT_TRUE(rest.again);
  world.now += Seconds(3600);
  world.settle();
  EXPECT_NE(world.pod(0).name, waits);
  EXPECT_EQ(world.pod(0).avoids, "");
  EXPECT_TRUE(world.status().unhealthy.empty());
}

TEST(UnhealthyNodePass, ANodeThatIsFoundAgainIsTriedLater) {
  World world(quick_spec(1));
  world.settle();
  world.run_pods();
  unfit(world, 0, "only");
  world.settle();
  world.now += Seconds(10);
  world.run_pods();
  unfit(world, 0, "only");
  world.settle();
  const OwnStatus status = world.status();
  EXPECT_EQ(status.unhealthy[0].times, 2);
  ASSERT_TRUE(status.restarts.not_before);
  EXPECT_GT(*status.restarts.not_before, world.now);
  EXPECT_EQ(status.restarts.counted, 0);
}

TEST(UnhealthyNodePass, ARuleMayEndTheJob) {
  Json spec = quick_spec(2);
  spec["failurePolicy"]["rules"] =
      Json::array({{{"action", "FailJob"}, {"onReasons", {"UnhealthyNode"}}}});
  World world(spec);
  world.settle();
  world.run_pods();
  unfit(world, 1);
  world.settle();
  EXPECT_EQ(world.condition("Failed"), "True FailurePolicy");
}

// ---- nodes that were lost

/// A running job of two workers whose node-1 was lost; worker 1 has its next pod.
void lose_node_1(World& world) {
  world.to_running();
  world.o.nodes["node-1"] = {.ready = false, .since = world.now};
  world.settle();
  world.now += Seconds(200);
  world.settle();
  ASSERT_EQ(world.status().last_failure["reason"], "NodeLost");
  world.pod(1).unscheduled = "0/2 nodes are available";
}

TEST(LostNodePass, APodThatWaitsIsMadeAnewWhenTheNodeIsBack) {
  World world;
  lose_node_1(world);
  const std::string waits = world.pod(1).name;
  EXPECT_EQ(world.pod(1).avoids, "node-1");
  world.settle();
  EXPECT_EQ(world.pod(1).name, waits);
  world.o.nodes["node-1"].ready = true;
  world.settle();
  EXPECT_NE(world.pod(1).name, waits);
  EXPECT_EQ(world.pod(1).avoids, "");
  EXPECT_EQ(world.status().restarts.total, 1);
}

TEST(LostNodePass, NobodyKeepsAwayFromANodeThatNobodySees) {
  World world;
  lose_node_1(world);
  world.o.nodes.erase("node-1");  // removed from the cluster; another may get its name
  world.settle();
  EXPECT_EQ(world.pod(1).avoids, "");
}

TEST(LostNodePass, AHistoryThatSomebodyEditedIsNoList) {
  EXPECT_THAT(lost_nodes(Json()), ::testing::IsEmpty());
  EXPECT_THAT(lost_nodes(Json::parse(R"([1, {"reason": 2}, {"reason": "NodeLost", "node": "a"},
                                         {"reason": "PodFailed", "node": "b"}])")),
              ElementsAre("a"));
}

// ---- what a pod is told

std::string told(World& world, const std::string& name) {
  return env(pod_of(world)["spec"]["containers"][0], name);
}

jobspec::NodeHealth told_health(World& world) {
  const auto policies = jobspec::policies_from_pod(told(world, jobspec::kEnvPolicies));
  EXPECT_TRUE(policies);
  return policies ? policies->failure.node_health : jobspec::NodeHealth{};
}

using Action = jobspec::NodeHealthAction;

TEST(UnhealthyNodePod, IsToldWhatToDo) {
  Json spec = quick_spec(2);
  World plain(spec);
  EXPECT_EQ(told_health(plain).action, Action::Move);
  EXPECT_EQ(told(plain, contract::kEnvMemoryRequest), "requests.memory");
  EXPECT_EQ(told(plain, contract::kEnvGpus), "");
  EXPECT_EQ(told(plain, contract::kEnvNode), "spec.nodeName");
  EXPECT_EQ(told_health(plain).min_peer_bandwidth_percent, 20);
  const std::string revision = plain.o.wanted.accepted->revision;
  spec["failurePolicy"]["nodeHealth"]["action"] = "Report";
  World report(spec);
  EXPECT_EQ(told_health(report).action, Action::Report);
  EXPECT_EQ(report.o.wanted.accepted->revision, revision) << "running pods stay";
  spec["failurePolicy"]["nodeHealth"]["minPeerBandwidthPercent"] = 0;
  World unmeasured(spec);
  EXPECT_EQ(told_health(unmeasured).action, Action::Report);
  EXPECT_EQ(told_health(unmeasured).min_peer_bandwidth_percent, 0);
  EXPECT_EQ(told(unmeasured, contract::kEnvNode), "");
  EXPECT_EQ(unmeasured.o.wanted.accepted->revision, revision);
  spec["failurePolicy"]["nodeHealth"].erase("minPeerBandwidthPercent");
  spec["failurePolicy"]["nodeHealth"]["action"] = "Off";
  spec["workers"]["template"]["spec"]["containers"] =
      Json::parse(R"([{"name": "worker", "resources": {"limits": {"nvidia.com/gpu": 8}}}])");
  World off(spec);
  EXPECT_EQ(told_health(off).action, Action::Off);
  EXPECT_EQ(told(off, contract::kEnvNode), "");
  spec["failurePolicy"].erase("nodeHealth");
  World gpus(spec);
  EXPECT_EQ(told(gpus, contract::kEnvGpus), "8");
}

TEST(UnhealthyNodePod, KueuesGroupsTakeNoPodThatAvoidsANode) {
  Json spec = quick_spec(2);
  spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  World world(spec);
  EXPECT_EQ(told_health(world).action, Action::Report);
  spec["failurePolicy"]["nodeHealth"]["action"] = "Move";
  World refused(spec);
  EXPECT_EQ(refused.o.wanted.accepted, nullptr);
  EXPECT_THAT(refused.message("Accepted") + refused.o.wanted.message,
              HasSubstr("nodeHealth.action"));
}

}  // namespace
}  // namespace dsj::op::testing
