// Ends of pods as users' clusters bring them: other containers beside the worker, evictions, what kubelets reject. What
// is right follows from the API's own rules, not from what this operator did before.
#include <gmock/gmock.h>

#include "operator/render/render_config.h"
#include "operator/render/render_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

Json container(const char* name, const Json& state) {
  return {{"name", name}, {"state", state}};
}
Json runs() {
  return {{"running", {{"startedAt", "2026-01-01T00:00:00Z"}}}};
}
Json ended(int code, const std::string& reason, const Json& words = nullptr) {
  Json state = {{"exitCode", code}, {"reason", reason}};
  if (!words.is_null()) state["message"] = words.dump();
  return {{"terminated", state}};
}
Json done(int attempt = 1) {
  return ended(0, "Completed",
               {{"reason", "Completed"}, {"message", "done"}, {"step", 10}, {"attempt", attempt}});
}
/// A pod with a sidecar: its phase is what the kubelet makes of both.
Json beside(const Json& worker, const Json& sidecar, const char* phase = "Running") {
  return {{"phase", phase},
          {"containerStatuses",
           Json::array({container("worker", worker), container("istio-proxy", sidecar)})}};
}

/// Minutes go by, with passes.
void minutes(World& world, int count) {
  for (int i = 0; i < 6 * count; ++i) {
    world.now += Seconds(10);
    world.pass();
    world.reap();
  }
}

TEST(Sidecar, AJobIsCompleteWhenItsWorkersAreAndASidecarRunsOn) {
  World world;
  world.to_running();
  for (const int worker : {0, 1}) {
    world.kubelet_says(world.pod(worker), beside(done(), runs()));
    world.settle();
  }
  EXPECT_EQ(world.phase(), "Complete");
  minutes(world, 2);
  EXPECT_TRUE(world.o.pods.empty()) << "what would run on, and hold its node, goes";
}

TEST(Sidecar, ItsExitCodeDecidesNothing) {
  for (const int code : {0, 1, 137}) {
    World world;
    world.to_running();
    for (const int worker : {0, 1})
      world.kubelet_says(world.pod(worker),
                         beside(done(), ended(code, "Error"), code == 0 ? "Succeeded" : "Failed"));
    world.settle();
    EXPECT_EQ(world.phase(), "Complete") << code;
    EXPECT_EQ(world.o.pods.size(), 2u) << "their logs stay";
  }
}

TEST(Sidecar, AWorkerThatIsKilledBesideOneIsReplacedAndTheOldPodGoes) {
  World world;
  world.to_running();
  world.kubelet_says(world.pod(1), beside(ended(137, "OOMKilled"), runs()));
  world.pass();
  const Plan plan = world.pass();
  EXPECT_EQ(world.status().last_failure["reason"], "OOMKilled");
  EXPECT_EQ(world.status().restarts.counted, 1);
  world.settle();
  EXPECT_THAT(world.pod_names(), Contains("j-worker-1-2"));
  EXPECT_THAT(world.pod_names(), ::testing::Not(Contains("j-worker-1-1")))
      << "it would hold its node's GPUs";
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().restarts.counted, 1);
}

/// The pod's own grace period is for saving; a sidecar that ignores SIGTERM has half a minute.
TEST(Sidecar, ItIsNotWaitedForAsRanksAre) {
  World world(quick_spec(1));
  world.to_running();
  world.kubelet_says(world.pod(0), beside(done(), runs()));
  std::vector<std::optional<int64_t>> graces;
  for (int i = 0; i < 5; ++i)
    for (const Delete& entry : world.pass().deletes)
      if (entry.kind == "Pod") graces.push_back(entry.grace_seconds);
  ASSERT_FALSE(graces.empty());
  EXPECT_EQ(graces[0], 30);
}

TEST(Sidecar, ANativeOneThatRunsOnKeepsNothingOpen) {
  World world(quick_spec(1));
  world.to_running();
  world.kubelet_says(world.pod(0),
                     {{"phase", "Running"},
                      {"initContainerStatuses", Json::array({container("istio-proxy", runs())})},
                      {"containerStatuses", Json::array({container("worker", done())})}});
  world.settle();
  EXPECT_EQ(world.phase(), "Complete");
}

/// A kubelet writes that the containers have ended before it ends the pod's phase.
TEST(Sidecar, APodWhosePhaseIsYetToEndKeepsItsLogs) {
  const Json alone = {{"phase", "Running"},
                      {"containerStatuses", Json::array({container("worker", done())})}};
  for (const Json& status : {alone, beside(done(), ended(0, "Completed"))}) {
    World world;
    world.to_running();
    for (const int worker : {0, 1}) world.kubelet_says(world.pod(worker), status);
    world.settle();
    minutes(world, 2);
    EXPECT_EQ(world.phase(), "Complete");
    EXPECT_EQ(world.o.pods.size(), 2u);
  }
}

/// A sidecar that ends first leaves the worker alone.
TEST(Sidecar, AWorkerWhoseSidecarEndedRunsOn) {
  World world;
  world.to_running();
  world.kubelet_says(world.pod(1), beside(runs(), ended(1, "Error")));
  minutes(world, 1);
  EXPECT_EQ(world.phase(), "Running");
  EXPECT_EQ(world.status().restarts.total, 0);
}

/// An init container of the template or of an admission webhook fails: the kubelet ends the pod, the worker never ran,
/// and native sidecars are ended after it. The failure names that container, wherever it is.
TEST(InitContainer, OneThatFailsIsNamed) {
  for (int at = 0; at < 3; ++at) {
    for (int sidecar = 0; sidecar <= 1; ++sidecar) {
      Json inits = Json::array(), statuses = Json::array();
      if (sidecar == 1) {
        inits.push_back({{"name", "istio-proxy"}, {"restartPolicy", "Always"}});
        statuses.push_back(container("istio-proxy", ended(137, "Error")));
      }
      for (int i = 0; i < 3; ++i) {
        const std::string name = "init-" + std::to_string(i);
        inits.push_back({{"name", name}});
        Json state = {{"waiting", {{"reason", "PodInitializing"}}}};
        if (i < at) state = ended(0, "Completed");
        if (i == at) {
          state = ended(13, at == 1 ? "OOMKilled" : "Error");
          state["terminated"]["message"] = "chown: Operation not permitted";
        }
        statuses.push_back(container(name.c_str(), state));
      }
      World world(quick_spec(1));
      world.settle();
      PodView& pod = world.pod(0);
      Json object =
          render_pod(world.o, *world.o.wanted.accepted, world.status(), 0, pod.incarnation).object;
      object["metadata"].update({{"name", pod.name}, {"uid", pod.uid}});
      object["spec"]["initContainers"] = inits;
      object["spec"]["nodeName"] = "n1";
      object["status"] = {
          {"phase", "Failed"},
          {"initContainerStatuses", statuses},
          {"containerStatuses",
           Json::array({container("worker", {{"waiting", {{"reason", "PodInitializing"}}}})})}};
      pod = *pod_view(object);
      world.settle();
      EXPECT_EQ(world.status().last_failure.value("message", ""),
                "init container init-" + std::to_string(at) + " ended with exit code 13" +
                    (at == 1 ? " (OOMKilled)" : "") + ": chown: Operation not permitted");
      EXPECT_EQ(world.status().restarts.counted, 1);
    }
  }
}

/// A gate that no queue of ours removes: whoever set it must, so the status names it.
TEST(Gates, OneOfAStrangerIsNamed) {
  World world(quick_spec(1));
  world.settle();
  const auto gated_by = [&](const std::vector<const char*>& names) {
    Json object =
        render_pod(world.o, *world.o.wanted.accepted, world.status(), 0, world.pod(0).incarnation)
            .object;
    object["metadata"].update({{"name", world.pod(0).name}, {"uid", world.pod(0).uid}});
    for (const char* name : names) object["spec"]["schedulingGates"].push_back({{"name", name}});
    world.pod(0) = *pod_view(object);
    world.settle();
    return world.message("Scheduled");
  };
  EXPECT_EQ(gated_by({"kueue.x-k8s.io/admission"}), "a queue holds the pods");
  EXPECT_THAT(gated_by({"example.com/budget"}), HasSubstr("scheduling gate example.com/budget"));
  EXPECT_THAT(gated_by({"kueue.x-k8s.io/admission", "example.com/a", "example.com/b"}),
              HasSubstr("scheduling gate example.com/a, example.com/b"));
}

/// A kubelet calls an exit code 0 Completed. Only an agent knows whether the last step is done.
TEST(Completed, AnExitCodeAloneIsNoSuccess) {
  World world(quick_spec(1));
  world.to_running();
  world.kubelet_says(world.pod(0), {{"phase", "Succeeded"},
                                    {"containerStatuses",
                                     Json::array({container("worker", ended(0, "Completed"))})}});
  world.settle();
  EXPECT_NE(world.phase(), "Complete");
  EXPECT_EQ(world.status().restarts.counted, 1);
}

Json evicted(bool disruption) {
  Json status = {{"phase", "Failed"},
                 {"reason", "Evicted"},
                 {"message", "Usage of EmptyDir volume \"dsj-tmp\" exceeds the limit \"10Gi\"."},
                 {"containerStatuses", Json::array({container("worker", ended(137, "Error"))})}};
  if (disruption)
    status["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
  return status;
}

/// Ten in a row: the pod's own use is its own fault.
TEST(Eviction, ForAPodsOwnUseIsCharged) {
  World world(quick_spec(1));
  world.settle();
  int made = 1;
  for (; made <= 10 && world.condition("Failed") != "True BackoffLimitExceeded"; ++made) {
    world.run_pods();
    world.kubelet_says(world.pod(0), evicted(false));
    minutes(world, 2);
  }
  EXPECT_EQ(world.condition("Failed"), "True BackoffLimitExceeded");
  EXPECT_LE(made, 6) << "backoffLimit is 3";
  EXPECT_THAT(world.message("Failed"), HasSubstr("exceeds the limit"));
  EXPECT_EQ(world.status().last_failure["reason"], "Evicted");
}

/// Under pressure of a node each successor is evicted: uncharged, but not 92 in a minute.
TEST(Eviction, UnderPressureIsUnchargedAndPausesGrow) {
  World world(quick_spec(1));
  world.settle();
  int made = 0;
  for (int i = 0; i < 300; ++i) {
    world.now += Seconds(4);
    made += static_cast<int>(world.pass().pods.size());
    world.run_pods();
    if (!world.pod(0).ended()) world.kubelet_says(world.pod(0), evicted(true));
    world.pass();
    world.reap();
  }
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_GE(made, 5);
  EXPECT_LE(made, 14);
  // A newer checkpoint ends the row.
  world.now += Seconds(301);
  world.settle();
  world.start_attempt();
  world.o.job->agent.saved_step = 5;
  world.settle();
  world.kubelet_says(world.pod(0), evicted(true));
  const auto before = world.pod(0).name;
  world.settle();
  EXPECT_NE(world.pod(0).name, before) << "the next is made at once";
}

Json rejected(const char* reason, const char* message) {
  return {{"phase", "Failed"}, {"reason", reason}, {"message", message}};
}

class Rejected : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

/// A node that was booted takes no pod until its devices are there: nobody is charged, the node is avoided for a while.
TEST_P(Rejected, ByAKubeletIsUnchargedAndItsNodeIsAvoidedForAWhile) {
  const auto& [reason, message] = GetParam();
  World world;
  world.to_running();
  const std::string node = world.pod(1).node;
  world.o.nodes[node] = {.ready = true};
  Json shutdown =
      rejected("NodeShutdown", "Pod was terminated in response to imminent node shutdown.");
  shutdown["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
  world.kubelet_says(world.pod(1), shutdown);
  int made = 0;
  for (int second = 0; second < 100; ++second) {
    world.now += Seconds(1);
    for (const Create& pod : world.pass().pods) {
      ++made;
      if (made < 2) continue;
      const Json terms =
          pod.object["spec"]["affinity"]["nodeAffinity"]
                    ["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
      EXPECT_EQ(terms[0]["matchFields"][0]["key"], "metadata.name");
      EXPECT_EQ(terms[0]["matchFields"][0]["values"], Json::array({node}));
    }
    PodView& pod = world.pod(1);
    if (pod.ended() || !pod.avoids.empty()) continue;  // the scheduler keeps it away
    pod.node = node;
    world.kubelet_says(pod, rejected(reason, message));
  }
  EXPECT_EQ(made, 2) << "one that was rejected, one that waits for another node";
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  EXPECT_EQ(world.status().restarts.counted, 0);
  const std::string word = world.status().last_failure["reason"];
  EXPECT_TRUE(word.starts_with(std::string(reason).substr(0, 5))) << word;
  // After two minutes the node gets another chance.
  for (int i = 0; i < 20; ++i) {
    world.now += Seconds(10);
    world.pass();
    world.reap();
  }
  EXPECT_TRUE(world.pod(1).avoids.empty());
  EXPECT_TRUE(world.status().unhealthy.empty());
  world.start_attempt();
  EXPECT_EQ(world.phase(), "Running");
}

INSTANTIATE_TEST_SUITE_P(
    Kubelet, Rejected,
    ::testing::Values(
        std::pair{"OutOfcpu", "Node didn't have enough resource: cpu"},
        std::pair{"OutOfnvidia.com/gpu", "Node didn't have enough resource"},
        std::pair{"UnexpectedAdmissionError",
                  "Pod was rejected: Allocate failed due to no healthy devices present"},
        std::pair{"NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed"},
        std::pair{"TopologyAffinityError",
                  "Pod was rejected: Resources cannot be allocated with Topology locality"}));

/// As Rejected, on a cluster without another node: it is tried again and again, never ended, never in a storm.
TEST(Eviction, ARejectionByTheOnlyNodeEndsNothing) {
  World world(quick_spec(1));
  world.settle();
  int made = 1;
  for (int i = 0; i < 900; ++i) {
    world.now += Seconds(4);
    made += static_cast<int>(world.pass().pods.size());
    for (PodView& pod : world.o.pods) {
      if (pod.ended() || !pod.avoids.empty()) continue;
      pod.node = "only";
      world.kubelet_says(pod, rejected("OutOfcpu", "Node didn't have enough resource: cpu"));
    }
    world.pass();
    world.reap();
  }
  EXPECT_EQ(world.condition("Failed"), "False NotFinished");
  EXPECT_GE(made, 10);
  EXPECT_LE(made, 70);
}

/// Everything that job.json says is in the revision; what may change while a gang runs is in the status.
TEST(Timeouts, WhatIsRenderedForAgentsIsWhatIsHashed) {
  const auto rendered = [](const World& world) {
    for (const Create& one : render_config(world.o, *world.o.wanted.accepted))
      if (one.kind == "ConfigMap")
        return one.object["data"][contract::kWorkerJobFile].get<std::string>();
    return std::string();
  };
  const World plain;
  const std::vector<std::pair<const char*, Json>> edits = {
      {"/checkpoint/onSuspend/timeoutSeconds", 77},
      {"/liveness/stepTimeoutSeconds", 99},
      {"/backoffLimit", 9},
      {"/restartPolicy", "Never"},
      {"/suspend", true},
      {"/runPolicy/activeDeadlineSeconds", 5},
      {"/failurePolicy/nodeFailure/graceSeconds", 7},
      {"/training/maxSteps", 11},
      {"/training/learningRate", 1e-3},
      {"/training/outputDir", "/other"},
      {"/workers/replicas", 3},
      {"/workers/slotsPerWorker", 2},
      {"/deepspeed/config/zero_optimization/stage", 1}};
  int same = 0;
  for (const auto& [pointer, value] : edits) {
    World world;
    world.edit(pointer, value);
    ASSERT_TRUE(world.o.wanted.accepted) << pointer << world.o.wanted.message;
    const bool hashed = world.o.wanted.accepted->revision != plain.o.wanted.accepted->revision;
    EXPECT_EQ(rendered(world) != rendered(plain), hashed) << pointer;
    same += !hashed;
  }
  EXPECT_EQ(same, 7) << "policies leave running pods alone";
}

TEST(Timeouts, AnEditOfThemReachesAgent0ByTheStatus) {
  World world;
  world.to_running();
  EXPECT_EQ(world.o.job->own_status["timeouts"],
            Json({{"saveSeconds", 600}, {"stepSeconds", 1800}}));
  const auto pods = world.pod_names();
  world.edit("/checkpoint/onSuspend/timeoutSeconds", 77);
  world.edit("/liveness/stepTimeoutSeconds", 99);
  world.settle();
  EXPECT_EQ(world.o.job->own_status["timeouts"], Json({{"saveSeconds", 77}, {"stepSeconds", 99}}));
  EXPECT_EQ(world.pod_names(), pods);
  // A refused edit moves nothing.
  Json bad = world.o.job->spec;
  bad["liveness"]["stepTimeoutSeconds"] = 5;
  bad["deepspeed"]["config"]["zero_optimization"]["stage"] = 9;
  world.edit(bad);
  world.settle();
  EXPECT_EQ(world.o.job->own_status["timeouts"]["stepSeconds"], 99);
}

/// The operator is upgraded while a gang runs: one pod is made anew, then all.
TEST(Upgrade, ARunKeepsItsImageUntilAllItsPodsAreNew) {
  World world(quick_spec(3));
  world.o.settings.worker_image = "worker:1";
  world.to_running();
  world.o.settings.worker_image = "worker:2";
  world.settle();
  EXPECT_EQ(world.o.pods.size(), 3u) << "an upgrade restarts nothing";
  world.end(world.pod(1), 137, "Error");
  world.settle();
  EXPECT_EQ(world.pod(1).name, "j-worker-1-2");
  EXPECT_EQ(world.pod(1).image, "worker:1");
  world.start_attempt();
  world.end_all(1, "RankFailed");
  world.settle();
  world.now += Seconds(40);
  world.settle();
  for (const int worker : {0, 1, 2}) EXPECT_EQ(world.pod(worker).image, "worker:2") << worker;
}

TEST(HostNetwork, ItsPodsAskTheClustersDns) {
  Json spec = quick_spec(2);
  spec["workers"]["template"] =
      Json::parse(R"({"spec": {"hostNetwork": true, "containers": [{"name": "worker"}]}})");
  World world(spec);
  world.settle();
  const Json pod =
      render_pod(world.o, *world.o.wanted.accepted, world.status(), 0, 1).object["spec"];
  EXPECT_EQ(pod["dnsPolicy"], "ClusterFirstWithHostNet");
  spec["workers"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst";
  world.edit(spec);
  EXPECT_FALSE(world.o.wanted.accepted);
  EXPECT_THAT(world.o.wanted.message, HasSubstr("ClusterFirstWithHostNet"));
  spec["workers"]["template"]["spec"]["dnsPolicy"] = "None";
  world.edit(spec);
  EXPECT_TRUE(world.o.wanted.accepted) << "the template says itself whom it asks";
}

}  // namespace
}  // namespace dsj::op::testing
