// The resources are what the schema says, and small enough for kubectl apply.
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "job/spec/resource.h"
#include "job/spec/yaml.h"
#include "operator/observe/own_status.h"
#include "test_paths.h"

namespace dsj::op {
namespace {

using nlohmann::json;

json crd(const std::string& plural = "deepspeedjobs") {
  auto document = jobspec::read_yaml(DSJ_SOURCE_DIR "/crds/" + plural + ".yaml");
  if (!document) {
    ADD_FAILURE() << document.error().to_string();
    return {};
  }
  return document->value;
}

json version(const std::string& plural = "deepspeedjobs") {
  return crd(plural)["spec"]["versions"][0];
}

json schema(const std::string& path, const std::string& plural = "deepspeedjobs") {
  json at = version(plural)["schema"]["openAPIV3Schema"];
  size_t begin = 0;
  while (begin < path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    std::string name = path.substr(begin, end - begin);
    const bool item = name.ends_with("[]");
    if (item) name.resize(name.size() - 2);
    at = at["properties"][name];
    if (item) at = at["items"];
    begin = end + 1;
  }
  return at;
}

std::set<std::string> names(const json& schema) {
  std::set<std::string> all;
  for (const auto& [name, value] : schema["properties"].items()) all.insert(name);
  return all;
}

/// `make docs` writes what the schema says, ranges and texts included.
TEST(Crd, IsWhatTheSchemaSays) {
  for (const char* plural : {"deepspeedjobs", "deepspeedjobtemplates"}) {
    std::ifstream file(std::string(DSJ_SOURCE_DIR) + "/crds/" + plural + ".yaml");
    const std::string committed{std::istreambuf_iterator<char>(file), {}};
    const auto made = jobspec::resource_text(committed);
    ASSERT_TRUE(made) << made.error().to_string();
    EXPECT_TRUE(*made == committed) << plural << ": `make docs` writes it anew";
  }
}

/// A server takes only texts, numbers and booleans that no list holds.
TEST(Crd, WhatJobsAreSelectedByIsInTheSchema) {
  std::set<std::string> paths;
  const json served = version();
  for (const json& one : served["selectableFields"]) {
    const std::string path = one["jsonPath"];
    paths.insert(path);
    EXPECT_EQ(schema(path.substr(1))["type"], "string") << path;
  }
  EXPECT_EQ(paths, (std::set<std::string>{".status.phase", ".spec.workers.templateRef.name",
                                          ".spec.runPolicy.schedulingPolicy.queue"}));
}

TEST(Crd, ThePageOfFieldsIsWhatTheSchemaSays) {
  std::ifstream file(DSJ_SOURCE_DIR "/docs/fields.md");
  const std::string committed{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(jobspec::fields_markdown() == committed) << "`make docs` writes it anew";
}

TEST(Crd, HasEveryFieldOfTheOperatorsStatus) {
  OwnStatus status;
  status.start = status.completion = status.stop_since = status.incomplete = Time{};
  status.restarts.attempt = 1;
  status.restarts.last = status.restarts.not_before = Time{};
  status.revision = status.spec_hash = "r";
  status.incarnation = status.key_run = 1;
  status.key_uid = "u";
  status.save_timeout_seconds = status.step_timeout_seconds = 1;
  status.restarts.uncounted = 1;
  status.reason = "r";
  status.template_name = "t";
  status.completed = status.damage_told = 1;
  status.completed_since = Time{};
  status.elastic = ElasticState{.setbacks = 1,
                                .message = "m",
                                .changed = Time{},
                                .growable = Time{},
                                .spares_in_vain = Time{},
                                .not_before = Time{}};
  status.unhealthy.push_back({.name = "n", .message = "m", .until = Time{}});
  status.last_failure = json::object();
  status.failure_history.push_back(json::object());
  const auto declared = names(schema("status"));
  const json written = to_json(status);
  for (const auto& [name, value] : written.items()) {
    EXPECT_TRUE(declared.contains(name)) << name;
  }
  EXPECT_EQ(declared.size(), written.size() + 2);  // training, checkpoint
  const auto elastic = names(schema("status.elastic"));
  EXPECT_EQ(elastic.size(), written["elastic"].size());
  for (const auto& [name, value] : written["elastic"].items()) {
    EXPECT_TRUE(elastic.contains(name)) << name;
  }
  const auto unhealthy = names(schema("status.unhealthyNodes[]"));
  EXPECT_EQ(unhealthy.size(), written["unhealthyNodes"][0].size());
  for (const auto& [name, value] : written["unhealthyNodes"][0].items()) {
    EXPECT_TRUE(unhealthy.contains(name)) << name;
  }
  const auto restarts = names(schema("status.restarts"));
  for (const auto& [name, value] : written["restarts"].items()) {
    EXPECT_TRUE(restarts.contains(name)) << name;
  }
}

/// What a pod's field is, `kubectl explain pod.spec` says. A template's own fields are a pod's and a container's.
bool is_deep_in_a_pod(const std::string& path) {
  const size_t begin = path.find("template.spec.");
  if (begin == std::string::npos) return false;
  const auto dots = std::ranges::count(path.substr(begin), '.');
  return dots > (path.contains("ontainers[]") ? 3 : 2);
}

/// Paths of properties without a description, or with one that is no sentence.
void collect_undescribed(const json& schema, const std::string& path,
                         std::vector<std::string>& found) {
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, property] : properties.items()) {
    const std::string at = path.empty() ? name : path + "." + name;
    const std::string text = property.value("description", "");
    if (!text.ends_with('.') && !is_deep_in_a_pod(at)) found.push_back(at);
    collect_undescribed(property, at, found);
    if (property.contains("items")) collect_undescribed(property["items"], at + "[]", found);
  }
}

TEST(Crd, ExplainsEveryField) {
  for (const char* plural : {"deepspeedjobs", "deepspeedjobtemplates"}) {
    std::vector<std::string> found;
    collect_undescribed(schema("", plural), "", found);
    EXPECT_THAT(found, ::testing::UnorderedElementsAre("apiVersion", "kind", "metadata"));
  }
}

TEST(Crd, KeepsDsConfigUntyped) {
  const json config = schema("spec.deepspeed.config");
  EXPECT_EQ(config["x-kubernetes-preserve-unknown-fields"], true);
  EXPECT_FALSE(config.contains("properties"));
}

/// Objects with fields of their own that drop what they do not know.
void collect_pruning(const json& schema, const std::string& path, std::vector<std::string>& found) {
  const bool keeps = schema.value("x-kubernetes-preserve-unknown-fields", false);
  if (schema.contains("properties") && !keeps) found.push_back(path);
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, property] : properties.items())
    collect_pruning(property, path + "." + name, found);
  for (const char* inner : {"items", "additionalProperties"})
    if (schema.contains(inner)) collect_pruning(schema[inner], path + "[]", found);
}

/// A newer API server's pods have fields that this schema lacks.
TEST(Crd, KeepsWhatATemplateSaysBeyondTheSchema) {
  std::vector<std::string> found;
  collect_pruning(schema("spec.workers.template.spec"), "spec", found);
  // A claim's own labels and annotations.
  EXPECT_THAT(found,
              ::testing::ElementsAre("spec.volumes[].ephemeral.volumeClaimTemplate.metadata"));
}

/// What a template says is checked at apply: whatever is deep in it has a type.
TEST(Crd, TypesTheTemplate) {
  const json pod = schema("spec.workers.template.spec");
  EXPECT_FALSE(schema("spec.workers.template").contains("x-kubernetes-preserve-unknown-fields"));
  // A default would change stored specs; the keys of lists that are maps need theirs.
  std::string text = pod.dump();
  for (const char* key : {"\"default\":\"TCP\",", "\"default\":\"\","})
    for (size_t at = text.find(key); at != std::string::npos; at = text.find(key))
      text.erase(at, std::string(key).size());
  EXPECT_EQ(text.find("\"default\""), std::string::npos);
  EXPECT_FALSE(pod.contains("required"));  // the operator adds "worker"
  EXPECT_EQ(schema("spec.workers.template.spec.containers[].env[].name")["type"], "string");
  const json limits = schema("spec.workers.template.spec.containers[].resources.limits");
  EXPECT_EQ(limits["additionalProperties"]["x-kubernetes-int-or-string"], true);
  EXPECT_EQ(schema("spec.template", "deepspeedjobtemplates")["properties"],
            schema("spec.workers.template")["properties"]);
}

/// As k8s.io/api/core/v1 says it of a pod (+listMapKey), so that server-side apply merges a template as it merges a pod.
TEST(Crd, ATemplatesListsHaveThePodsKeys) {
  using Keys = std::vector<std::string>;
  const json pod = schema("spec.workers.template.spec");
  const auto keys = [](const json& list) {
    return list.value("x-kubernetes-list-map-keys", Keys{});
  };
  for (const char* name : {"containers", "initContainers", "volumes", "imagePullSecrets",
                           "schedulingGates", "resourceClaims"})
    EXPECT_EQ(keys(pod["properties"][name]), Keys{"name"}) << name;
  EXPECT_EQ(keys(pod["properties"]["hostAliases"]), Keys{"ip"});
  EXPECT_EQ(keys(pod["properties"]["topologySpreadConstraints"]),
            (Keys{"topologyKey", "whenUnsatisfiable"}));
  for (const char* list : {"containers", "initContainers"}) {
    const json container = pod["properties"][list]["items"]["properties"];
    EXPECT_EQ(keys(container["env"]), Keys{"name"});
    EXPECT_EQ(keys(container["ports"]), (Keys{"containerPort", "protocol"}));
    EXPECT_EQ(keys(container["volumeMounts"]), Keys{"mountPath"});
    EXPECT_EQ(keys(container["volumeDevices"]), Keys{"devicePath"});
    EXPECT_EQ(keys(container["resources"]["properties"]["claims"]), Keys{"name"});
    EXPECT_EQ(keys(container["args"]), Keys{});
  }
}

TEST(Crd, HasStatusScaleAndColumns) {
  const json v1alpha1 = version();
  const json& scale = v1alpha1["subresources"]["scale"];
  EXPECT_EQ(scale["specReplicasPath"], ".spec.workers.replicas");
  EXPECT_EQ(schema("status.replicas")["type"], "integer");
  EXPECT_EQ(schema("status.selector")["type"], "string");
  std::string wide, narrow;
  for (const json& column : v1alpha1["additionalPrinterColumns"]) {
    std::string name = column["name"];
    for (char& c : name) c = static_cast<char>(std::toupper(c));
    (column.value("priority", 0) ? wide : narrow) += name + " ";
    std::string path = column["jsonPath"];
    path.erase(0, 1);
    if (path.starts_with("metadata")) continue;
    EXPECT_EQ(schema(path)["type"], column["type"]) << path;
  }
  EXPECT_EQ(narrow, "STATE REASON WORKERS STEP PROGRESS RESTARTS CKPT AGE ");
  EXPECT_EQ(wide, "WANTED WORLD ZERO LOSS TOK/S ETA ");
}

/// The annotation of `kubectl apply` has the object as JSON, and may have 256 KiB.
TEST(Crd, IsSmallEnoughForKubectlApply) {
  const size_t size = crd().dump().size();
  RecordProperty("bytes", static_cast<int>(size));
  EXPECT_LT(size, 110u * 1024);
}

}  // namespace
}  // namespace dsj::op
