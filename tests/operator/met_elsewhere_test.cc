// Situations that users of other operators reported in 2025 and 2026, each put to this one. The comment names the public
// thread. What others do to a job's objects is played on an API server (one_job.h), the rest by hand (world.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/operator/one_job.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

Json container_state(const char* name, Json state) {
  return {{"name", name}, {"state", std::move(state)}};
}

Json terminated(int code) {
  return {{"phase", "Failed"},
          {"containerStatuses",
           Json::array({container_state(
               "worker", {{"terminated", {{"exitCode", code}, {"reason", "Error"}}}})})}};
}

int living(const World& world) {
  return static_cast<int>(std::ranges::count_if(
      world.o.pods, [](const PodView& pod) { return !pod.ended() && !pod.deleting_from; }));
}

/// kubeflow/trainer 2981, 3737 and 3779: what ran is deleted after the job is over, by a TTL or a user, and the job runs
/// again, with a new budget.
TEST(MetElsewhere, AJobThatIsOverMakesNothingAnewWhateverIsDeleted) {
  for (const bool fails : {false, true}) {
    Json spec = quick_spec();
    spec["backoffLimit"] = 0;
    World world(spec);
    world.to_running();
    world.end_all(fails ? 1 : contract::kExitDone,
                  fails ? "RankFailed" : contract::kReasonCompleted, 10);
    world.settle();
    world.reap();
    const std::string phase = world.phase();
    EXPECT_EQ(phase, fails ? "Failed" : "Complete");
    const int64_t restarts = world.status().restarts.total;
    world.o.pods.clear();
    world.o.children.clear();
    world.secrets.clear();
    for (int i = 0; i < 5; ++i) {
      world.now += Seconds(600);
      world.settle();
    }
    EXPECT_TRUE(world.o.pods.empty() && world.o.children.empty() && world.secrets.empty());
    EXPECT_EQ(world.phase(), phase);
    EXPECT_EQ(world.status().restarts.total, restarts);
  }
}

/// kubeflow/trainer 3994: the deadline ends the job, one deletion fails, and the pods run on.
TEST(MetElsewhere, ADeletionThatFailsAfterTheDeadlineIsRepeated) {
  OneJob one;
  Json spec = quick_spec();
  spec["runPolicy"]["activeDeadlineSeconds"] = 20;
  one.submit(spec);
  one.turns(5);
  one.run_pods();
  one.server.set_fault([](const kube::Request& request) {
    using kube::testing::Fault;
    return request.method == "DELETE" ? Fault{.kind = Fault::Kind::Refuse, .status = 500} : Fault{};
  });
  one.turns(60);
  EXPECT_EQ(one.status().phase, "Failed");
  one.server.set_fault(nullptr);
  one.turns(65);
  for (const Json& pod : one.server.objects(kube::resources::pods()))
    EXPECT_TRUE(pod["metadata"].contains("deletionTimestamp")) << pod["metadata"]["name"];
}

/// mongodb/mongodb-kubernetes-operator 1732: a policy adds labels, at admission and later, and the operator takes them off.
TEST(MetElsewhere, LabelsOfAPolicyStayAndCauseNoWrites) {
  OneJob one;
  one.server.set_admission([](Json& object) { object["metadata"]["labels"]["team"] = "ml"; });
  one.submit();
  one.turns(30);
  one.run_pods();
  one.turns(5);
  const std::pair<const char*, const char*> objects[] = {{"Service", "j-worker"},
                                                         {"Role", "j-worker"},
                                                         {"RoleBinding", "j-worker"},
                                                         {"NetworkPolicy", "j-worker"}};
  for (const auto& [kind, name] : objects)
    one.server.edit(resource_of(kind), "n", name,
                    [](Json& object) { object["metadata"]["labels"]["cost-center"] = "7"; });
  for (const Json& pod : one.server.objects(kube::resources::pods()))
    one.server.edit(kube::resources::pods(), "n", pod["metadata"]["name"],
                    [](Json& object) { object["metadata"]["labels"]["cost-center"] = "7"; });
  one.writes.clear();
  one.turns(100);
  EXPECT_EQ(one.all_writes(), 0);
  // A repair keeps them.
  one.server.edit(kube::resources::services(), "n", "j-worker", [](Json& object) {
    object["spec"]["selector"] = {{"app", "x"}};
    object["metadata"]["annotations"]["external-dns"] = "a.example.com";
    object["metadata"]["finalizers"] = Json::array({"service.kubernetes.io/load-balancer-cleanup"});
  });
  one.turns(5);
  const Json service = one.server.objects(kube::resources::services())[0];
  EXPECT_EQ(service["spec"]["selector"][contract::kLabelJobName], "j");
  EXPECT_EQ(service["metadata"]["labels"]["cost-center"], "7");
  EXPECT_EQ(service["metadata"]["annotations"]["external-dns"], "a.example.com");
  EXPECT_EQ(service["metadata"]["finalizers"].size(), 1u);
}

/// prometheus-operator 8049, Kong/kong-operator 888: GKE Autopilot sets resources and tolerations of pods; others put their
/// container first, set a time zone and a scheduler. The operator takes such a pod for a changed one.
TEST(MetElsewhere, APodThatAdmissionRewroteIsTheJobsPod) {
  OneJob one;
  one.server.set_admission([](Json& object) {
    if (object["kind"] != "Pod") return;
    Json& spec = object["spec"];
    for (Json& container : spec["containers"]) {
      container["resources"] = {{"requests", {{"cpu", "500m"}, {"ephemeral-storage", "1Gi"}}},
                                {"limits", {{"ephemeral-storage", "1Gi"}}}};
      container["env"].push_back({{"name", "TZ"}, {"value", "Europe/Berlin"}});
    }
    spec["containers"].insert(spec["containers"].begin(),
                              Json{{"name", "istio-proxy"}, {"image", "p"}});
    spec["initContainers"] = Json::array({{{"name", "vault-agent"}, {"restartPolicy", "Always"}}});
    spec["tolerations"] =
        Json::array({{{"key", "cloud.google.com/gke-spot"}, {"operator", "Exists"}}});
    spec["nodeSelector"]["pool"] = "train";
    spec["priorityClassName"] = "batch";
  });
  one.submit();
  one.turns(10);
  ASSERT_EQ(one.server.objects(kube::resources::pods()).size(), 2u);
  for (const Json& pod : one.server.objects(kube::resources::pods()))
    one.set_pod(pod, {{"phase", "Running"},
                      {"containerStatuses",
                       Json::array({container_state("istio-proxy", {{"running", Json::object()}}),
                                    container_state("worker", {{"running", Json::object()}})})}});
  one.server.edit(jobs_resource(), "n", "j", [&](Json& job) {
    job["status"]["training"] = {{"attempt", 1}, {"lastUpdatedTime", to_text(one.clock.at())}};
  });
  one.turns(5);
  EXPECT_EQ(one.status().phase, "Running");
  one.start_operator();
  one.writes.clear();
  one.turns(60);
  EXPECT_EQ(one.server.objects(kube::resources::pods()).size(), 2u);
  EXPECT_EQ(one.all_writes(), 0);
  // A lost worker joins the others' run.
  const Json lost = one.server.objects(kube::resources::pods())[1];
  ASSERT_TRUE(one.user.remove(kube::resources::pods(), "n", lost["metadata"]["name"],
                              {.grace_seconds = 0}));
  one.turns(5);
  std::set<std::string> authorities;
  for (const Json& pod : one.server.objects(kube::resources::pods()))
    authorities.insert(pod_view(pod)->authority);
  EXPECT_EQ(one.server.objects(kube::resources::pods()).size(), 2u);
  EXPECT_EQ(authorities.size(), 1u);
}

/// argoproj-labs/argocd-operator 2214: the annotations by which Argo CD tracks the resource are copied to what is made of it, and
/// Argo CD deletes that.
TEST(MetElsewhere, TheJobsOwnAnnotationsAndLabelsAreNotCopied) {
  OneJob one;
  one.submit();
  one.server.edit(jobs_resource(), "n", "j", [](Json& job) {
    job["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = "app:x";
    job["metadata"]["labels"]["app.kubernetes.io/instance"] = "app";
  });
  one.turns(10);
  int objects = 0;
  for (const char* kind : {"ConfigMap", "Service", "ServiceAccount", "Role", "RoleBinding",
                           "NetworkPolicy", "Secret", "Pod"}) {
    for (const Json& object : one.server.objects(resource_of(kind))) {
      ++objects;
      EXPECT_FALSE(object.dump().contains("argocd.argoproj.io")) << kind;
      EXPECT_FALSE(object["metadata"]["labels"].contains("app.kubernetes.io/instance")) << kind;
    }
  }
  EXPECT_EQ(objects, 9);
}

/// flyteorg/flyte 8067, kubernetes-sigs/jobset 1117: a pod that the scheduler preempts ends with 143, which looks like the
/// program's own failure.
TEST(MetElsewhere, APreemptionBySignalIsNotCharged) {
  for (const int code : {137, 143, 1}) {
    Json spec = quick_spec();
    spec["backoffLimit"] = 0;
    World world(spec);
    world.to_running();
    Json status = terminated(code);
    status["conditions"] = Json::array(
        {{{"type", "DisruptionTarget"}, {"status", "True"}, {"reason", "PreemptionByScheduler"}}});
    world.kubelet_says(world.pod(1), status);
    world.settle();
    world.reap();
    world.now += Seconds(5);
    world.settle();
    EXPECT_NE(world.phase(), "Failed") << code;
    EXPECT_EQ(world.status().restarts.counted, 0) << code;
    EXPECT_EQ(living(world), 2) << code;
  }
}

/// dynamical-org/reformatters 945: Karpenter consolidates the node of a worker five times in an hour. What was saved is kept, so
/// nobody waits.
TEST(MetElsewhere, EvictionsBetweenCheckpointsHaveNoGrowingPause) {
  World world;
  world.to_running();
  for (int i = 1; i <= 5; ++i) {
    world.now += Seconds(420);
    world.o.job->agent.saved_step = 10 * i;
    world.o.job->agent.updated = world.now;
    world.settle();
    Json status = terminated(143);
    status["conditions"] = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
    world.kubelet_says(world.pod(1), status);
    world.settle();
    world.reap();
    world.now += Seconds(1);
    world.settle();
    EXPECT_EQ(living(world), 2) << "after eviction " << i;
    world.start_attempt();
  }
  EXPECT_EQ(world.status().restarts.counted, 0);
  EXPECT_EQ(world.phase(), "Running");
}

/// attune-io/attune 430, KEP-1287: a vertical autoscaler asks for another size, and the node has no room for it.
TEST(MetElsewhere, AResizeInPlaceThatMustWaitDisturbsNothing) {
  World world;
  world.to_running();
  for (const char* reason : {"Deferred", "Infeasible"}) {
    Json status = {
        {"phase", "Running"},
        {"conditions",
         Json::array({{{"type", "PodResizePending"}, {"status", "True"}, {"reason", reason}},
                      {{"type", "PodScheduled"}, {"status", "True"}}})},
        {"containerStatuses",
         Json::array({container_state("worker", {{"running", Json::object()}})})}};
    world.kubelet_says(world.pod(1), status);
    const Plan plan = world.pass();
    EXPECT_TRUE(plan.deletes.empty() && plan.pods.empty());
    EXPECT_EQ(world.phase(), "Running");
  }
}

/// ray-project/kuberay 5138: a namespace's quota asks every container for limits; the refusal names the container.
TEST(MetElsewhere, AQuotaThatAsksForLimitsIsQuotedAndTriedAgain) {
  OneJob one;
  bool strict = true;
  const sim::Bug quota{
      .name = "quota",
      .answer = [&](const kube::Request& request) -> std::optional<kube::Response> {
        if (!strict || request.method != "POST" || !request.path.ends_with("/pods"))
          return std::nullopt;
        return kube::Response{
            .status = 403,
            .body = Json({{"kind", "Status"},
                          {"code", 403},
                          {"reason", "Forbidden"},
                          {"message",
                           "pods \"j-worker-0-1\" is forbidden: failed quota: q: must specify "
                           "limits.ephemeral-storage for: worker"}})
                        .dump()};
      }};
  one.submit();
  one.op.emplace(one.server, one.clock, one.chance, &quota);
  one.turns(20);
  EXPECT_EQ(one.condition("Scheduled").reason, "Forbidden");
  EXPECT_THAT(one.condition("Scheduled").message,
              HasSubstr("must specify limits.ephemeral-storage for: worker"));
  const int64_t before = one.server.requests("POST") + one.server.requests("DELETE");
  one.turns(300);
  EXPECT_LT(one.server.requests("POST") + one.server.requests("DELETE") - before, 5)
      << "the key is not made anew";
  strict = false;
  one.turns(65);
  EXPECT_EQ(one.server.objects(kube::resources::pods()).size(), 2u);
}

/// kubernetes-sigs/jobset 576: a pod hangs in Terminating by somebody's finalizer after the job was deleted. One deletion is
/// enough.
TEST(MetElsewhere, APodThatHangsByAFinalizerIsDeletedOnce) {
  OneJob one;
  one.submit();
  one.turns(5);
  one.run_pods();
  for (const Json& pod : one.server.objects(kube::resources::pods()))
    one.server.edit(kube::resources::pods(), "n", pod["metadata"]["name"], [](Json& object) {
      object["metadata"]["finalizers"] = Json::array({"example.com/logs"});
    });
  ASSERT_TRUE(one.user.remove(jobs_resource(), "n", "j"));
  one.turns(20);
  const int64_t before = one.server.requests("DELETE");
  one.turns(600);
  EXPECT_EQ(one.server.requests("DELETE"), before);
  EXPECT_EQ(one.server.objects(kube::resources::pods()).size(), 2u);
}

}  // namespace
}  // namespace dsj::op::testing
