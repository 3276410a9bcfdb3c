// A pod template of the cluster and a job's own as one.
#include "job/spec/worker_template.h"

#include <gmock/gmock.h>

#include "job/spec/job.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

json cluster_template() {
  return json::parse(R"({
    "metadata": {"labels": {"team": "a", "net": "rdma"}},
    "spec": {
      "nodeSelector": {"gpu": "h200"},
      "tolerations": [{"key": "gpu"}, {"key": "rdma"}],
      "volumes": [{"name": "data", "emptyDir": {}}, {"name": "cache", "emptyDir": {}}],
      "containers": [
        {"name": "worker", "image": "base:1",
         "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "1Ti"}},
         "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}, {"name": "NCCL_DEBUG", "value": "WARN"}],
         "volumeMounts": [{"name": "data", "mountPath": "/data"}],
         "livenessProbe": {"httpGet": {"port": 1}}},
        {"name": "exporter", "image": "exporter:1"}]}})");
}

TEST(WorkerTemplate, TheJobsOwnFieldsWin) {
  const json own = json::parse(R"({
    "metadata": {"labels": {"team": "b"}},
    "spec": {
      "tolerations": [{"key": "spot"}],
      "priorityClassName": null,
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "x"}],
      "containers": [
        {"name": "side", "image": "side:1"},
        {"name": "worker", "image": "mine:2",
         "resources": {"limits": {"memory": "2Ti"}},
         "env": [{"name": "NCCL_DEBUG", "valueFrom": {"fieldRef": {"fieldPath": "p"}}},
                 {"name": "MINE", "value": "1"}],
         "livenessProbe": {"exec": {"command": ["true"]}}}]}})");
  const json expected = json::parse(R"({
    "metadata": {"labels": {"team": "b", "net": "rdma"}},
    "spec": {
      "nodeSelector": {"gpu": "h200"},
      "tolerations": [{"key": "spot"}],
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}},
                  {"name": "cache", "emptyDir": {}}, {"name": "x"}],
      "containers": [
        {"name": "worker", "image": "mine:2",
         "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "2Ti"}},
         "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"},
                 {"name": "NCCL_DEBUG", "valueFrom": {"fieldRef": {"fieldPath": "p"}}},
                 {"name": "MINE", "value": "1"}],
         "volumeMounts": [{"name": "data", "mountPath": "/data"}],
         "livenessProbe": {"exec": {"command": ["true"]}}},
        {"name": "exporter", "image": "exporter:1"},
        {"name": "side", "image": "side:1"}]}})");
  const json merged = merge_pod_templates(cluster_template(), own);
  EXPECT_EQ(merged, expected) << json::diff(merged, expected).dump(1);
  EXPECT_EQ(merge_pod_templates(cluster_template(), merged), merged) << "it is taken up once";
}

TEST(WorkerTemplate, NothingOnOneSideIsTheOther) {
  EXPECT_EQ(merge_pod_templates(cluster_template(), json::object()), cluster_template());
  EXPECT_EQ(merge_pod_templates(cluster_template(), nullptr), cluster_template());
  EXPECT_EQ(merge_pod_templates(nullptr, cluster_template()), cluster_template());
  // Of a wrong shape: the job's own is what the checks see.
  const json wrong = {{"spec", {{"containers", "worker"}}}};
  EXPECT_EQ(merge_pod_templates(cluster_template(), wrong)["spec"]["containers"], "worker");
  const json nameless = {{"spec", {{"containers", json::array({"worker", json::object()})}}}};
  EXPECT_EQ(merge_pod_templates(cluster_template(), nameless)["spec"]["containers"].size(), 4u);
}

TEST(WorkerTemplate, ASpecNamesOneAndTakesItUp) {
  EXPECT_EQ(template_ref(json::object()), "");
  EXPECT_EQ(template_ref({{"workers", {{"templateRef", "h200"}}}}), "");
  const json spec = {{"workers", {{"replicas", 2}, {"templateRef", {{"name", "h200"}}}}}};
  EXPECT_EQ(template_ref(spec), "h200");
  EXPECT_EQ(with_pod_template(spec, {{"spec", 1}}),
            (json{{"workers", {{"replicas", 2}, {"template", {{"spec", 1}}}}}}));
}

TEST(WorkerTemplate, IsKeptAsAText) {
  const auto read =
      worker_template_from_text(to_text({.name = "h200", .generation = 3, .pod = {{"spec", 1}}}));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, "h200");
  EXPECT_EQ(read->generation, 3);
  EXPECT_EQ(read->pod, (json{{"spec", 1}}));
  EXPECT_FALSE(worker_template_from_text(""));
  EXPECT_FALSE(worker_template_from_text("[1]"));
}

std::vector<std::string> finding_paths(const json& workers, const char* launcher = "Native") {
  const json manifest = {
      {"apiVersion", kApiVersion},
      {"kind", kKind},
      {"metadata", {{"name", "a"}}},
      {"spec",
       {{"launcher", launcher},
        {"deepspeed", {{"config", json::object()}}},
        {"training", {{"modelNameOrPath", "/m"}, {"dataPath", "/d"}, {"outputDir", "/o"}}},
        {"workers", workers}}}};
  const auto job = read_cluster_manifest(manifest);
  EXPECT_TRUE(job);
  std::vector<std::string> paths;
  for (const auto& finding : job->findings) paths.push_back(finding.path);
  return paths;
}

TEST(WorkerTemplate, WhatItMaySayIsNotMissingInTheJob) {
  const json ref = {{"name", "h200"}};
  EXPECT_THAT(finding_paths({{"templateRef", ref}}), ElementsAre());
  EXPECT_THAT(finding_paths({{"templateRef", ref}}, "Command"), ElementsAre());
  const json worker = json::parse(R"({"spec": {"containers": [{"name": "worker"}]}})");
  EXPECT_THAT(finding_paths({{"templateRef", ref}, {"template", worker}}, "Command"),
              ElementsAre());
  EXPECT_EQ(finding_paths({{"template", worker}}, "Command").size(), 3u) << "and the output";
  EXPECT_THAT(finding_paths({{"templateRef", json::object()}}),
              ElementsAre("spec.workers.templateRef.name"));
  EXPECT_THAT(finding_paths({{"templateRef", {{"nam", "h200"}}}}),
              ElementsAre("spec.workers.templateRef.nam", "spec.workers.templateRef.name"));
}

TEST(WorkerTemplate, IsRefusedWhereThereIsNoCluster) {
  const auto job = parse_job_yaml(R"(
apiVersion: training.dsj.dev/v1alpha1
kind: DeepSpeedJob
metadata: {name: a}
spec:
  deepspeed: {config: {}}
  training: {modelNameOrPath: /m, dataPath: /d, outputDir: /o}
  workers: {templateRef: {name: h200}}
)",
                                  "job.yaml");
  ASSERT_TRUE(job);
  ASSERT_EQ(job->findings.size(), 1u);
  EXPECT_EQ(job->findings[0].path, "spec.workers.templateRef");
  EXPECT_EQ(job->findings[0].message, "has effect in a cluster only");
}

}  // namespace
}  // namespace dsj::jobspec
