// Workers packed by a node label: what each pod asks for, and over a job's life.
#include "operator/render/topology.h"

#include <gmock/gmock.h>

#include "tests/operator/rendered_pod.h"
#include "tests/operator/world.h"

namespace dsj::op::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kRequired[] = "requiredDuringSchedulingIgnoredDuringExecution";
constexpr char kPreferred[] = "preferredDuringSchedulingIgnoredDuringExecution";

Json rack_spec(const char* mode, int replicas = 2) {
  Json spec = quick_spec(replicas);
  spec["workers"]["topology"] = {{"key", "topology.kubernetes.io/rack"}, {"mode", mode}};
  return spec;
}

/// By hand from what Kubernetes reads.
Json term() {
  return Json::parse(
      R"({"topologyKey": "topology.kubernetes.io/rack", "labelSelector": {"matchLabels": {
    "training.dsj.dev/job-name": "j", "training.dsj.dev/replica-type": "worker"}}})");
}

/// The others follow the first pod. That one may go anywhere because it matches its own term.
TEST(Topology, RequiredIsAnAffinityThatThePodItselfMatches) {
  World world(rack_spec("Required"));
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  for (const int worker : {0, 1}) {
    const Json pod = pod_of(world, worker);
    EXPECT_EQ(pod["spec"]["affinity"],
              Json({{"podAffinity", {{kRequired, Json::array({term()})}}}}));
    const Json labels = term()["labelSelector"]["matchLabels"];
    for (const auto& [name, value] : labels.items())
      EXPECT_EQ(pod["metadata"]["labels"][name], value);
    EXPECT_EQ(pod["metadata"].dump().find("kueue"), std::string::npos);
  }
}

TEST(Topology, PreferredHasTheLargestWeight) {
  World world(rack_spec("Preferred"));
  EXPECT_EQ(
      pod_of(world)["spec"]["affinity"],
      Json({{"podAffinity",
             {{kPreferred, Json::array({{{"weight", 100}, {"podAffinityTerm", term()}}})}}}}));
}

TEST(Topology, WithoutItThereIsNoAffinity) {
  World world;
  EXPECT_FALSE(pod_of(world)["spec"].contains("affinity"));
}

/// The user's own terms, unfit nodes and the topology stand side by side.
TEST(Topology, NothingOfAnAffinityIsLost) {
  Json spec = rack_spec("Preferred");
  spec["workers"]["template"]["spec"] =
      Json::parse(R"({"containers": [{"name": "worker"}], "affinity": {
    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
      {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}},
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}],
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                      {"weight": 5, "podAffinityTerm": {"topologyKey": "block"}}]},
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
      {"topologyKey": "kubernetes.io/hostname"}]}}})");
  World world(spec);
  ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
  world.o.job->own_status["unhealthyNodes"] = Json::array(
      {{{"node", "n7"}, {"message", "m"}, {"time", "2026-01-01T00:00:00Z"}, {"times", 1}}});
  const Json affinity = pod_of(world)["spec"]["affinity"];
  const Json& near = affinity["podAffinity"];
  EXPECT_EQ(near[kRequired], Json::array({{{"topologyKey", "zone"}}}));
  ASSERT_EQ(near[kPreferred].size(), 2u);
  EXPECT_EQ(near[kPreferred][0]["weight"], 5);
  EXPECT_EQ(near[kPreferred][1]["podAffinityTerm"], term());
  EXPECT_EQ(affinity["podAntiAffinity"][kRequired].size(), 1u);
  const Json& nodes = affinity["nodeAffinity"][kRequired]["nodeSelectorTerms"];
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_THAT(nodes.dump(), HasSubstr("gpu"));
  EXPECT_THAT(nodes.dump(), HasSubstr("n7"));
}

/// By hand from what Kueue reads. The number of the pod is what its rank order follows.
TEST(Topology, KueueIsAskedByItsAnnotation) {
  for (const auto& [mode, annotation] :
       {std::pair{"Required", "kueue.x-k8s.io/podset-required-topology"},
        std::pair{"Preferred", "kueue.x-k8s.io/podset-preferred-topology"}}) {
    Json spec = rack_spec(mode);
    spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
    World world(spec);
    ASSERT_TRUE(world.o.wanted.accepted) << world.o.wanted.message;
    const Json pod = pod_of(world, 1, "j-kueue-1");
    EXPECT_EQ(pod["metadata"]["annotations"][annotation], "topology.kubernetes.io/rack");
    EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"], "2");
    EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-pod-index"], "1");
    EXPECT_FALSE(pod["spec"].contains("affinity")) << "of the shape that was admitted";
    EXPECT_TRUE(pod_of(world, 1)["spec"].contains("affinity"))
        << "a gang that began without Kueue goes on without it";
  }
}

TEST(Topology, VolcanoIsRefusedWithTheReason) {
  Json spec = rack_spec("Required");
  spec["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  const Verdict verdict = judge("j", spec, std::nullopt, "");
  EXPECT_FALSE(verdict.accepted);
  EXPECT_EQ(verdict.reason, "Unsupported");
  EXPECT_THAT(verdict.message, HasSubstr("spec.workers.topology: Volcano packs"));
}

/// What a DeepSpeedJobTemplate brings is seen, too.
TEST(Topology, ATemplatesRequiredAffinityIsRefused) {
  const jobspec::WorkerTemplate source{
      .name = "t", .generation = 1, .pod = Json::parse(R"({"spec": {
    "containers": [{"name": "worker"}], "affinity": {"podAffinity": {
      "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}}})")};
  const Verdict verdict = judge("j", rack_spec("Required"), std::nullopt, "",
                                {.name = "t", .text = jobspec::to_text(source)});
  EXPECT_THAT(verdict.message, HasSubstr("with template t (generation 1): spec.workers.template"));
}

TEST(Topology, AReplacementFollowsTheLivingAndAnEditMovesAll) {
  World world(rack_spec("Required"));
  const Plan first = world.pass();
  ASSERT_EQ(first.pods.size(), 2u);
  for (const Create& pod : first.pods)
    EXPECT_EQ(pod.object["spec"]["affinity"]["podAffinity"][kRequired][0], term());
  world.to_running();
  world.end(world.pod(1), contract::kExitFailed, "RankFailed");
  Plan plan = world.pass();
  for (int i = 0; i < 5 && plan.pods.empty(); ++i) {
    world.now += Seconds(60);
    plan = world.pass();
  }
  ASSERT_EQ(plan.pods.size(), 1u);
  EXPECT_EQ(plan.pods[0].object["spec"]["affinity"]["podAffinity"][kRequired][0], term());
  const std::string before = world.o.wanted.accepted->revision;
  world.edit("/workers/topology/key", "topology.kubernetes.io/zone");
  EXPECT_NE(world.o.wanted.accepted->revision, before) << "running pods cannot move";
}

TEST(Topology, SparesOfAnElasticJobAskForTheDomainOfItsGang) {
  Json spec = rack_spec("Required", 4);
  spec["deepspeed"]["config"] = {{"train_batch_size", 8}, {"train_micro_batch_size_per_gpu", 1}};
  spec["elastic"] = {{"minReplicas", 2}, {"maxReplicas", 8}};
  World world(spec);
  world.to_running();
  world.edit("/workers/replicas", 8);
  Plan plan = world.pass();
  for (int i = 0; i < 5 && plan.pods.empty(); ++i) plan = world.pass();
  ASSERT_EQ(plan.pods.size(), 4u);
  for (const Create& pod : plan.pods)
    EXPECT_EQ(pod.object["spec"]["affinity"]["podAffinity"][kRequired], Json::array({term()}));
}

}  // namespace
}  // namespace dsj::op::testing
