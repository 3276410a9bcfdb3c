// What spec.initializers may say, and the init containers that it becomes.
#include "job/spec/initializers.h"

#include <gmock/gmock.h>

#include "job/spec/cluster_spec.h"
#include "tests/job/spec/refusal.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

json initialized_spec() {
  return json::parse(R"j({
    "deepspeed": {"config": {"train_batch_size": "auto"}},
    "training": {"modelNameOrPath": "/data/models/qwen/", "dataPath": "/data/rows.json",
                 "outputDir": "/out", "maxSteps": 9},
    "workers": {"replicas": 2, "slotsPerWorker": 1, "template": {"spec": {
      "initContainers": [{"name": "mine", "image": "i"}],
      "containers": [{"name": "worker",
        "resources": {"limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 1}},
        "volumeMounts": [{"name": "root", "mountPath": "/"},
                         {"name": "data", "mountPath": "/data", "subPath": "a", "readOnly": true}]}],
      "volumes": [{"name": "root", "emptyDir": {}},
                  {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]}}},
    "initializers": {
      "model": {"storageUri": "hf://org/$model", "image": "hub", "args": ["--to", "$(STAGING)"],
                "env": [{"name": "REVISION", "value": "main"}], "secretRef": {"name": "hub-token"}},
      "dataset": {"storageUri": "s3://bucket/rows.json", "image": "s3",
                  "env": [{"name": "HOME", "value": "/data"}], "resources": {"limits": {"cpu": 1}}}}
})j");
}

std::string refusal_with(const char* pointer, const json& value) {
  json changed = initialized_spec();
  changed[json::json_pointer(pointer)] = value;
  return refusal(changed);
}

std::string value(const json& container, const std::string& name) {
  for (const json& entry : container["env"])
    if (entry["name"] == name) return entry["value"];
  return "none";
}

TEST(Initializers, BecomeInitContainersBehindTheTemplatesOwn) {
  ASSERT_THAT(refusal(initialized_spec()), IsEmpty());
  const Job job = check_cluster_spec("j", initialized_spec(), std::nullopt).job;
  const json& inits = job.worker_template["spec"]["initContainers"];
  ASSERT_EQ(inits.size(), 3u);
  EXPECT_EQ(inits[0]["name"], "mine");
  const json& model = inits[1];
  EXPECT_EQ(initializer_of(model["name"]), "model");
  EXPECT_EQ(model["image"], "hub");
  EXPECT_EQ(model["args"], json({"--to", "$(STAGING)"}));
  EXPECT_EQ(value(model, "STORAGE_URI"), "hf://org/$$model") << "the kubelet makes $ of it";
  EXPECT_EQ(value(model, "TARGET"), "/data/models/qwen");
  EXPECT_EQ(value(model, "MARKER"), "/data/models/.qwen.source");
  EXPECT_EQ(value(model, "REVISION"), "main");
  EXPECT_EQ(value(model, "HOME"), "/tmp");
  EXPECT_EQ(model["envFrom"], json::parse(R"([{"secretRef": {"name": "hub-token"}}])"));
  EXPECT_EQ(model["volumeMounts"],
            json::parse(R"([{"name": "data", "mountPath": "/data", "subPath": "a"}])"));
  EXPECT_EQ(model["resources"], json::parse(R"({"limits": {"cpu": 4, "memory": "8Gi"}})"));
  EXPECT_EQ(model["terminationMessagePolicy"], "FallbackToLogsOnError");
  EXPECT_EQ(initializer_of(inits[2]["name"]), "dataset");
  EXPECT_EQ(value(inits[2], "TARGET"), "/data/rows.json");
  EXPECT_EQ(value(inits[2], "HOME"), "/data");
  EXPECT_EQ(inits[2]["resources"], json::parse(R"({"limits": {"cpu": 1}})"));
  EXPECT_EQ(initializer_of("mine"), "");
  EXPECT_EQ(staging_path("/data/rows.json", 3), "/data/.rows.json.staging-3");
}

TEST(Initializers, TheVolumeSaysWhoFetches) {
  const auto every_pod = [](const json& volume) {
    json changed = initialized_spec();
    json& volumes = changed["workers"]["template"]["spec"]["volumes"];
    volumes[1] = volume;
    volumes[1]["name"] = "data";
    const Job job = check_cluster_spec("j", changed, std::nullopt).job;
    return fetched_by_every_pod(job.worker_template, job.training.model_name_or_path);
  };
  EXPECT_FALSE(every_pod(json::parse(R"({"persistentVolumeClaim": {"claimName": "c"}})")));
  EXPECT_FALSE(every_pod(json::parse(R"({"nfs": {"server": "s", "path": "/p"}})")));
  for (const char* kind : {"emptyDir", "ephemeral", "hostPath", "csi"})
    EXPECT_TRUE(every_pod(json{{kind, json::object()}})) << kind;
}

TEST(Initializers, WhatIsWrongIsRefusedWithItsPath) {
  const struct {
    const char* pointer;
    json value;
    const char* message;
  } table[] = {
      {"/initializers/model/storageUri", "", "spec.initializers.model.storageUri: found \"\""},
      {"/initializers/model/image", "", "spec.initializers.model.image: found \"\""},
      {"/initializers/models", json::object(), "did you mean \"model\""},
      {"/initializers/dataset/url", "x", "\"url\" is not a field"},
      {"/initializers/model/storageUri", "https://me:word@host/x", "secretRef"},
      {"/initializers/model/env", json::parse(R"([{"name": "TARGET", "value": "/x"}])"),
       "spec.initializers.model.env[0].name: \"TARGET\" is set by the operator"},
      {"/initializers/model/env", json::parse(R"([{"name": "A", "valueFrom": {}}])"),
       "what is secret comes from secretRef"},
      {"/initializers/model/args", "x", "spec.initializers.model.args"},
      {"/initializers/model/secretRef", json::object(), "spec.initializers.model.secretRef.name"},
      {"/training/dataPath", "/data", "is where the volume \"data\" is mounted"},
      {"/workers/template/spec/volumes/1", json::parse(R"({"name": "data", "configMap": {}})"),
       "cannot be written"},
      {"/workers/template/spec/containers/0/volumeMounts", json::array(),
       "is on no volume of the container \"worker\""},
      {"/workers/template/spec/initContainers/0/name", "initialize-model",
       "initContainers[initialize-model]: the name"},
  };
  for (const auto& row : table)
    EXPECT_THAT(refusal_with(row.pointer, row.value), HasSubstr(row.message)) << row.pointer;
  EXPECT_THAT(refusal_with("/initializers/model/storageUri", "git+ssh://me@host/any scheme"),
              IsEmpty());
}

TEST(Initializers, VolumesMayComeFromATemplateThatNobodyHasRead) {
  json named = initialized_spec();
  named["workers"].erase("template");
  EXPECT_THAT(refusal(named), HasSubstr("is on no volume"));
  named["workers"]["templateRef"]["name"] = "h200";
  EXPECT_THAT(refusal(named), IsEmpty());
}

TEST(Initializers, OneMachineHasNone) {
  const json manifest = {{"apiVersion", kApiVersion},
                         {"kind", kKind},
                         {"metadata", {{"name", "j"}}},
                         {"spec", initialized_spec()}};
  const auto job = read_manifest({.value = manifest, .source = "job.yaml"}, "/");
  ASSERT_TRUE(job);
  bool refused = false;
  for (const auto& finding : job->findings) refused |= finding.path == "spec.initializers";
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace dsj::jobspec
