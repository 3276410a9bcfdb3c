// spec.workers.topology: what is read, and what is refused with its path.
#include "job/spec/schema.h"

#include <gmock/gmock.h>

#include "job/spec/job.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json manifest_with(json topology) {
  json object = json::parse(R"({
    "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob", "metadata": {"name": "a"},
    "spec": {
      "deepspeed": {"config": {"train_micro_batch_size_per_gpu": 1}},
      "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/out"},
      "workers": {"replicas": 2, "template": {"spec": {
        "containers": [{"name": "worker", "volumeMounts": [{"name": "v", "mountPath": "/out"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}}}})");
  object["spec"]["workers"]["topology"] = std::move(topology);
  return object;
}

json rack(const char* mode) {
  return {{"key", "topology.kubernetes.io/rack"}, {"mode", mode}};
}

/// "PATH: message (hint)" of each finding.
std::string findings_text(const json& object) {
  const auto job = read_cluster_manifest(object);
  if (!job) return job.error().to_string();
  std::string text;
  for (const auto& finding : job->findings)
    text += finding.path + ": " + finding.message + " (" + finding.hint + ")\n";
  return text;
}

TEST(TopologySpec, IsReadWithItsMode) {
  for (const auto& [word, mode] : {std::pair{"Required", Topology::Mode::Required},
                                   std::pair{"Preferred", Topology::Mode::Preferred}}) {
    EXPECT_THAT(findings_text(manifest_with(rack(word))), IsEmpty());
    const auto topology = read_cluster_manifest(manifest_with(rack(word)))->policies.topology;
    ASSERT_TRUE(topology);
    EXPECT_EQ(topology->key, "topology.kubernetes.io/rack");
    EXPECT_EQ(topology->mode, mode);
  }
  EXPECT_FALSE(read_cluster_manifest(manifest_with(nullptr))->policies.topology);
}

TEST(TopologySpec, ALabelsKeyIsWhatAnApiServerTakes) {
  for (const std::string good :
       {"rack", "a", "A_b.c-9", "topology.kubernetes.io/rack", "a-b.c/X"}) {
    EXPECT_TRUE(is_label_key(good)) << good;
  }
  EXPECT_TRUE(is_label_key(std::string(63, 'a')));
  EXPECT_TRUE(is_label_key(std::string(253, 'a') + "/" + std::string(63, 'b')));
  for (const std::string bad : {"", "/", "/a", "a/", "a/b/c", "my rack", "-a", "a.", "_", "A.b/x",
                                "a..b/x", ".a/x", "a./x", "a_b/x", "-a/x", "rack=1", "\xc3\xa4"}) {
    EXPECT_FALSE(is_label_key(bad)) << bad;
  }
  EXPECT_FALSE(is_label_key(std::string(64, 'a')));
  EXPECT_FALSE(is_label_key(std::string(254, 'a') + "/b"));
}

TEST(TopologySpec, WhatIsWrongIsSaidWithItsPath) {
  const std::vector<std::pair<json, std::string>> cases = {
      {"rack", "spec.workers.topology: found \"rack\", expected an object"},
      {{{"mode", "Required"}}, "spec.workers.topology.key: a field is missing"},
      {{{"key", "my rack"}, {"mode", "Required"}},
       "spec.workers.topology.key: found \"my rack\", expected the key of a node label"},
      {{{"key", 7}, {"mode", "Required"}}, "spec.workers.topology.key: found 7"},
      {{{"key", "rack"}}, "spec.workers.topology.mode: a field is missing (Required or Preferred)"},
      {rack("required"),
       "spec.workers.topology.mode: found \"required\", expected Required or Preferred"},
      {{{"key", "rack"}, {"mode", "Required"}, {"moed", 1}}, "did you mean \"mode\"?"}};
  for (const auto& [topology, says] : cases)
    EXPECT_THAT(findings_text(manifest_with(topology)), HasSubstr(says));
}

TEST(TopologySpec, VolcanoPacksByItsOwnTiers) {
  json object = manifest_with(rack("Preferred"));
  object["spec"]["runPolicy"]["schedulingPolicy"] = {{"scheduler", "volcano"}};
  EXPECT_THAT(findings_text(object),
              HasSubstr("spec.workers.topology: Volcano packs a group by the tiers"));
  object["spec"]["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  EXPECT_THAT(findings_text(object), IsEmpty());
}

/// A scheduler counts a pod as a neighbour only if it matches all required terms.
TEST(TopologySpec, ARequiredAffinityOfTheUserIsNotJoinedWithARequiredTopology) {
  const json term = {{"topologyKey", "zone"},
                     {"labelSelector", {{"matchLabels", {{"app", "cache"}}}}}};
  const char* required = "requiredDuringSchedulingIgnoredDuringExecution";
  const auto with = [&](const char* mode, const char* list, const json& terms) {
    json object = manifest_with(rack(mode));
    json& spec = object["spec"]["workers"]["template"]["spec"];
    spec["affinity"]["podAffinity"][list] = terms;
    return object;
  };
  EXPECT_THAT(findings_text(with("Required", required, json::array({term}))),
              HasSubstr(std::string("spec.workers.template.spec.affinity.podAffinity.") + required +
                        ": a required term cannot be combined with spec.workers.topology"));
  EXPECT_THAT(findings_text(with("Preferred", required, json::array({term}))), IsEmpty());
  EXPECT_THAT(findings_text(with("Required", required, json::array())), IsEmpty());
  EXPECT_THAT(findings_text(with("Required", "preferredDuringSchedulingIgnoredDuringExecution",
                                 json::array({{{"weight", 1}, {"podAffinityTerm", term}}}))),
              IsEmpty());
  EXPECT_THAT(findings_text(with("Preferred", required, term)),
              HasSubstr("expected a list of objects"));
  json kueue = with("Required", required, json::array({term}));
  kueue["spec"]["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  EXPECT_THAT(findings_text(kueue), IsEmpty()) << "Kueue is not asked by an affinity";
}

TEST(TopologySpec, KueueTakesOneTopology) {
  json object = manifest_with(rack("Required"));
  object["spec"]["runPolicy"]["schedulingPolicy"] = {{"scheduler", "kueue"}, {"queue", "q"}};
  object["spec"]["workers"]["template"]["metadata"]["annotations"] = {
      {"kueue.x-k8s.io/podset-preferred-topology", "rack"}};
  EXPECT_THAT(findings_text(object), HasSubstr("spec.workers.template.metadata.annotations: "
                                               "\"kueue.x-k8s.io/podset-preferred-topology\""));
}

TEST(TopologySpec, OneMachineHasNone) {
  dsconfig::Document document{.value = manifest_with(rack("Required"))};
  const auto job = read_manifest(document, "/");
  ASSERT_TRUE(job);
  bool said = false;
  for (const auto& finding : job->findings)
    said |= finding.path == "spec.workers.topology" &&
            finding.message == "has effect in a cluster only";
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace dsj::jobspec
