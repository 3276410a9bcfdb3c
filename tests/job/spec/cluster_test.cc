// A DeepSpeedJob as an API server holds it: policies, paths in containers, ConfigMaps, templates.
#include <gtest/gtest.h>

#include <algorithm>

#include "job/spec/job.h"
#include "job/spec/schema.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

json manifest() {
  return json::parse(R"({
    "apiVersion": "training.dsj.dev/v1alpha1", "kind": "DeepSpeedJob",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "generation": 3},
    "spec": {
      "deepspeed": {"config": {"train_batch_size": "auto", "zero_optimization": {"stage": 2}}},
      "training": {"modelNameOrPath": "/m", "dataPath": "/d.json", "outputDir": "/out",
                   "maxSteps": 10},
      "workers": {"replicas": 2, "slotsPerWorker": 1, "template": {"spec": {
        "containers": [{"name": "worker", "volumeMounts": [{"name": "v", "mountPath": "/out"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}}}}})");
}

std::vector<std::string> errors(const Job& job) {
  std::vector<std::string> paths;
  for (const auto& finding : job.findings) paths.push_back(finding.path);
  return paths;
}

TEST(ClusterManifest, PoliciesAreRead) {
  json object = manifest();
  object["spec"]["suspend"] = true;
  object["spec"]["runPolicy"] = {
      {"activeDeadlineSeconds", 60}, {"ttlSecondsAfterFinished", 0}, {"cleanPodPolicy", "All"}};
  object["spec"]["failurePolicy"] = json::parse(R"({"rules": [
      {"name": "oom", "action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1, 86]}},
      {"action": "RestartUncounted", "onPodConditions": ["DisruptionTarget"]}],
      "nodeFailure": {"graceSeconds": 1, "forceDeleteAfterSeconds": 20},
      "nodeHealth": {"action": "Report", "avoidSeconds": 700, "minPeerBandwidthPercent": 0}})");
  object["spec"]["checkpoint"]["onSuspend"]["timeoutSeconds"] = 7;
  object["spec"]["liveness"]["stepTimeoutSeconds"] = 9;
  const auto job = read_cluster_manifest(object);
  ASSERT_TRUE(job);
  EXPECT_TRUE(job->findings.empty()) << errors(*job)[0];
  const Policies& policies = job->policies;
  EXPECT_TRUE(policies.suspend);
  EXPECT_EQ(policies.run.active_deadline_seconds, 60);
  EXPECT_EQ(policies.run.startup_deadline_seconds, std::nullopt);
  EXPECT_EQ(policies.run.ttl_seconds_after_finished, 0);
  EXPECT_EQ(policies.run.clean_pods, CleanPods::All);
  ASSERT_EQ(policies.failure.rules.size(), 2u);
  EXPECT_EQ(policies.failure.rules[0].exit_codes, (std::vector<int>{1, 86}));
  EXPECT_TRUE(policies.failure.rules[0].exit_codes_not_in);
  EXPECT_EQ(policies.failure.rules[1].action, FailureAction::RestartUncounted);
  EXPECT_EQ(policies.failure.force_delete_after_seconds, 20);
  EXPECT_EQ(policies.failure.node_health.action, NodeHealthAction::Report);
  EXPECT_EQ(policies.failure.node_health.avoid_seconds, 700);
  EXPECT_EQ(policies.failure.node_health.min_peer_bandwidth_percent, 0);
  EXPECT_EQ(policies.save_timeout_seconds, 7);
  EXPECT_EQ(policies.step_timeout_seconds, 9);
}

TEST(ClusterManifest, NamesWhatIsWrong) {
  struct Bad {
    const char* pointer;
    json value;
    const char* path;
  };
  const json rule = {{"action", "Restart"}};
  for (const Bad& bad :
       {Bad{"/spec/training/modelNameOrPath", "org/model", "spec.training.modelNameOrPath"},
        Bad{"/spec/training/dataPath", "d.json", "spec.training.dataPath"},
        Bad{"/spec/training/outputDir", "", "spec.training.outputDir"},
        Bad{"/spec/suspend", "yes", "spec.suspend"},
        Bad{"/spec/runPolicy/cleanPodPolicy", "Some", "spec.runPolicy.cleanPodPolicy"},
        Bad{"/spec/runPolicy/ttl", 1, "spec.runPolicy.ttl"},
        Bad{"/spec/runPolicy/activeDeadlineSeconds", 0, "spec.runPolicy.activeDeadlineSeconds"},
        Bad{"/spec/failurePolicy/rules", json::array({rule}), "spec.failurePolicy.rules[0]"},
        Bad{"/spec/failurePolicy/rules", json::array({{{"action", "Retry"}, {"onReasons", {"x"}}}}),
            "spec.failurePolicy.rules[0].action"},
        Bad{"/spec/failurePolicy/nodeFailure/forceDeleteAfterSeconds", 5,
            "spec.failurePolicy.nodeFailure.forceDeleteAfterSeconds"},
        Bad{"/spec/failurePolicy/nodeHealth/action", "Taint",
            "spec.failurePolicy.nodeHealth.action"},
        Bad{"/spec/failurePolicy/nodeHealth/avoidSeconds", 5,
            "spec.failurePolicy.nodeHealth.avoidSeconds"},
        Bad{"/spec/failurePolicy/nodeHealth/minPeerBandwidthPercent", 91,
            "spec.failurePolicy.nodeHealth.minPeerBandwidthPercent"},
        Bad{"/spec/deepspeed",
            {{"configFrom", {{"file", "x.json"}}}},
            "spec.deepspeed.configFrom.file"},
        Bad{"/spec/deepspeed",
            {{"configFrom", {{"configMapKeyRef", {{"name", "c"}}}}}},
            "spec.deepspeed.configFrom.configMapKeyRef.key"},
        Bad{"/spec/workers/template", json::parse(R"({"spec": {"containers": [{"name": "x"}]}})"),
            "spec.workers.template.spec.containers"},
        Bad{"/spec/workers/template", json::parse(R"({"spec": {"containers": [{"name": "worker",
                             "env": [{"name": "DSJ_WORKER", "value": "0"}]}]}})"),
            "spec.workers.template.spec.containers[worker].env"},
        Bad{"/spec/workers/template", json::parse(R"({"spec": {"containers": [{"name": "worker",
                             "env": [{"name": "NCCL_P2P_DISABLE", "value": 1}]}]}})"),
            "spec.workers.template.spec.containers[worker].env"},
        Bad{"/spec/training/learningRate", "1e-4", "spec.training.learningRate"},
        Bad{"/spec/training/bf16", "true", "spec.training.bf16"},
        Bad{"/spec/training/warmup_ratio", 0.1, "spec.training.warmup_ratio"},
        Bad{"/spec/training/tf32", true, "spec.training.tf32"},
        Bad{"/spec/workers/template", json::parse(R"({"spec": {"restartPolicy": "Always"}})"),
            "spec.workers.template.spec.restartPolicy"},
        Bad{"/spec/workers/template",
            json::parse(R"({"spec": {"automountServiceAccountToken": false}})"),
            "spec.workers.template.spec.automountServiceAccountToken"},
        Bad{"/spec/workers/template",
            json::parse(R"({"metadata": {"labels": {"training.dsj.dev/revision": "x"}}})"),
            "spec.workers.template.metadata.labels"},
        Bad{"/spec/workers/template",
            json::parse(
                R"({"metadata": {"annotations": {"training.dsj.dev/avoided-nodes": "n"}}})"),
            "spec.workers.template.metadata.annotations"},
        Bad{"/spec/workers/template", json::parse(R"({"spec": {"hostname": "x"}})"),
            "spec.workers.template.spec.hostname"}}) {
    json object = manifest();
    object[json::json_pointer(bad.pointer)] = bad.value;
    const auto job = read_cluster_manifest(object);
    ASSERT_TRUE(job);
    const auto found = errors(*job);
    EXPECT_TRUE(std::count(found.begin(), found.end(), bad.path))
        << bad.path << ", found " << json(found);
  }
}

std::vector<std::string> field_names(const Field& row) {
  std::vector<std::string> names;
  for (const Field& field : row.fields) {
    if (!field.refusal.empty()) continue;  // belongs nowhere
    names.push_back(field.name);
    if (field.type == Type::Object)
      for (std::string& name : field_names(field)) names.push_back(std::move(name));
  }
  return names;
}

/// A field of a job, a container or a pod that is written where it does not belong: the finding says
/// where it does.
TEST(ClusterManifest, AFieldInTheWrongPlaceIsToldItsOwn) {
  const Field& spec = *std::ranges::find(job_schema().fields, "spec", &Field::name);
  std::vector<std::string> names = field_names(spec);
  for (const char* other : {"image", "resources", "tolerations", "volumes", "nprocPerNode"})
    names.emplace_back(other);
  for (const std::string& name : names) {
    if (std::ranges::find(spec.fields, name, &Field::name) != spec.fields.end()) continue;
    json object = manifest();
    object["spec"][name] = 1;
    const auto job = read_cluster_manifest(object);
    ASSERT_TRUE(job);
    const auto finding = std::ranges::find(job->findings, "spec." + name, &dsconfig::Finding::path);
    ASSERT_NE(finding, job->findings.end()) << name;
    EXPECT_FALSE(finding->hint.empty()) << name << ": " << finding->message;
  }
  for (const auto& [pointer, hint] :
       {std::pair{"/spec/ttlSecondsAfterFinished", "spec.runPolicy.ttlSecondsAfterFinished"},
        std::pair{"/spec/replicas", "spec.workers.replicas"},
        std::pair{"/spec/template", "spec.workers.template"},
        std::pair{"/spec/image", "container \"worker\""},
        std::pair{"/spec/runPolicy/suspend", "spec.suspend"},
        std::pair{"/spec/runPolicy/backoffLimit", "spec.backoffLimit"},
        std::pair{"/spec/workers/nodeSelector", "spec.workers.template.spec"}}) {
    json object = manifest();
    object[json::json_pointer(pointer)] = 1;
    const auto job = read_cluster_manifest(object);
    ASSERT_TRUE(job);
    EXPECT_TRUE(std::ranges::any_of(job->findings, [&](const dsconfig::Finding& finding) {
      return finding.hint.find(hint) != std::string::npos;
    })) << pointer;
  }
}

/// One finding for a ds_config that is a text, with the way on.
TEST(ClusterManifest, AConfigAsTextIsOneFinding) {
  json object = manifest();
  object["spec"]["deepspeed"]["config"] = "{\"train_batch_size\": 8}";
  const auto job = read_cluster_manifest(object);
  ASSERT_TRUE(job);
  EXPECT_EQ(errors(*job), std::vector<std::string>{"spec.deepspeed.config"});
  EXPECT_FALSE(job->findings[0].hint.empty());
}

TEST(ClusterManifest, ConfigMapsText) {
  json object = manifest();
  object["spec"]["deepspeed"] =
      json::parse(R"({"configFrom": {"configMapKeyRef": {"name": "c", "key": "ds.json"}}})");
  auto job = read_cluster_manifest(object);
  ASSERT_TRUE(job && job->ds_config_map);
  EXPECT_TRUE(job->findings.empty());
  EXPECT_EQ(job->ds_config_map->name, "c");
  ASSERT_TRUE(set_ds_config(*job, "{zero_optimization: {stage: 3}, // text\n}", "configmap c"));
  EXPECT_EQ(job->ds_config["zero_optimization"]["stage"], 3);
  const auto status = set_ds_config(*job, "{", "configmap c");
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().where.find("configmap c"), std::string::npos);
}

TEST(LocalManifest, ClusterPoliciesStopARun) {
  const auto job = parse_job_yaml(
      "apiVersion: training.dsj.dev/v1alpha1\nkind: DeepSpeedJob\nmetadata: {name: a}\nspec:\n"
      "  deepspeed: {config: {}}\n  training: {modelNameOrPath: /m, dataPath: /d}\n"
      "  runPolicy: {activeDeadlineSeconds: 5}\n",
      "j.yaml");
  ASSERT_TRUE(job) << job.error().to_string();
  ASSERT_EQ(job->findings.size(), 1u);
  EXPECT_EQ(job->findings[0].path, "spec.runPolicy");
  EXPECT_EQ(job->findings[0].severity, dsconfig::Finding::Severity::Unsupported);
  EXPECT_EQ(job->policies.run.active_deadline_seconds, 5);
}

}  // namespace
}  // namespace dsj::jobspec
