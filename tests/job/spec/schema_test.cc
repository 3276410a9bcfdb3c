// The rows of the schema: what is drawn at a field is accepted by the reader and by the resource's schema, or refused by
// both; a value that is read lands where its row says.
#include "job/spec/schema.h"

#include <gmock/gmock.h>

#include <random>

#include "job/spec/field_reader.h"
#include "job/spec/job.h"
#include "job/spec/pod_policies.h"
#include "job/spec/yaml.h"
#include "test_paths.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

json spec_schema() {
  const auto crd = read_yaml(DSJ_SOURCE_DIR "/crds/deepspeedjobs.yaml");
  if (!crd) ADD_FAILURE() << crd.error().to_string();
  return crd->value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
}

/// As an API server judges a value, without CEL.
bool is_valid(const json& schema, const json& value);

bool has_type(const json& schema, const json& value) {
  if (schema.contains("x-kubernetes-int-or-string"))
    return value.is_string() || value.is_number_integer();
  const std::string type = schema.value("type", "");
  return type.empty() || (type == "object" && value.is_object()) ||
         (type == "array" && value.is_array()) || (type == "string" && value.is_string()) ||
         (type == "boolean" && value.is_boolean()) ||
         (type == "integer" && value.is_number_integer()) ||
         (type == "number" && value.is_number());
}

bool is_in_bounds(const json& schema, const char* least, const char* most, double size) {
  return !(schema.contains(least) && size < schema[least].get<double>()) &&
         !(schema.contains(most) && size > schema[most].get<double>());
}

bool has_valid_members(const json& schema, const json& value) {
  for (const json& name : schema.value("required", json::array()))
    if (!value.contains(name)) return false;
  const json properties = schema.value("properties", json::object());
  for (const auto& [name, member] : value.items()) {
    if (properties.contains(name) && !is_valid(properties[name], member)) return false;
    if (schema.contains("additionalProperties") &&
        !is_valid(schema["additionalProperties"], member))
      return false;
    const bool open = schema.contains("additionalProperties") ||
                      schema.contains("x-kubernetes-preserve-unknown-fields");
    if (!open && !properties.contains(name)) return false;
  }
  return true;
}

bool is_valid(const json& schema, const json& value) {
  if (!has_type(schema, value)) return false;
  if (schema.contains("enum") && std::ranges::find(schema["enum"], value) == schema["enum"].end())
    return false;
  if (value.is_number()) return is_in_bounds(schema, "minimum", "maximum", value);
  if (value.is_string())
    return is_in_bounds(schema, "minLength", "maxLength", value.get<std::string>().size());
  if (value.is_object()) return has_valid_members(schema, value);
  if (!value.is_array()) return true;
  return is_in_bounds(schema, "minItems", "maxItems", value.size()) &&
         std::ranges::all_of(value,
                             [&](const json& one) { return is_valid(schema["items"], one); });
}

const std::vector<json>& drawn_values(const json& schema) {
  static std::vector<json> values = {0,
                                     -1,
                                     1,
                                     14,
                                     15,
                                     16,
                                     90,
                                     91,
                                     599,
                                     600,
                                     65'536,
                                     65'537,
                                     31'536'000,
                                     31'536'001,
                                     1'000'000'000'000'000,
                                     1.5,
                                     "",
                                     "x",
                                     "a/b",
                                     std::string(63, 'x'),
                                     std::string(64, 'x'),
                                     std::string(129, 'x'),
                                     std::string(254, 'x'),
                                     std::string(4097, 'x'),
                                     std::string(65'536, 'x'),
                                     std::string(65'537, 'x'),
                                     true,
                                     false,
                                     json::array(),
                                     {1},
                                     {0},
                                     {300},
                                     {"a"},
                                     {"a", 1},
                                     json::object(),
                                     {{"name", "x"}},
                                     {{"name", "x"}, {"value", "y"}},
                                     {{"cpu", 1}},
                                     {{"cpu", true}}};
  static const size_t common = values.size();
  values.resize(common);
  for (const json& word : schema.value("enum", json::array())) values.push_back(word);
  return values;
}

/// Errors of the reader at a field that has the value, refused values apart.
bool reads(const Field& row, const json& value) {
  std::vector<dsconfig::Finding> findings;
  Field alone;
  alone.fields = {row};
  // Targets write into the struct of their object; here only verdicts count.
  const std::function<void(Field&)> forget = [&](Field& field) {
    field.target = {};
    for (Field& inner : field.fields) forget(inner);
  };
  forget(alone);
  FieldReader(findings).read(alone, {{row.name, value}}, "", nullptr);
  return findings.empty();
}

void compare(const Field& row, const json& schema, const std::string& path) {
  const bool other_reader = row.read_elsewhere || row.type == Type::PodTemplate;
  if (other_reader || !row.refusal.empty() || row.actors == kLocal) return;
  for (const json& value : drawn_values(schema)) {
    if (row.valid && value.is_string()) continue;             // TopologySpec has its own words
    if (row.name == "configFrom" && value.empty()) continue;  // read by config_reader.h
    EXPECT_EQ(reads(row, value), is_valid(schema, value)) << path << " " << value;
  }
  for (const Field& inner : row.fields) {
    const json& at = row.type == Type::List ? schema["items"] : schema;
    compare(inner, at["properties"][inner.name], path + "." + inner.name);
  }
}

TEST(Schema, ReaderAndResourceAgreeOnDrawnValues) {
  const json schema = spec_schema();
  for (const Field& field : job_schema().fields) {
    if (field.name != "spec") continue;
    for (const Field& row : field.fields)
      compare(row, schema["properties"][row.name], "spec." + row.name);
  }
}

/// A model's own template has up to 20 KiB, and a user may write one into the field. Another text is a path or a word.
TEST(Schema, AChatTemplateMayBeLong) {
  const json training = spec_schema()["properties"]["training"]["properties"];
  EXPECT_EQ(training["chatTemplate"]["maxLength"], 65'536);
  EXPECT_EQ(training["outputDir"]["maxLength"], 4096);
}

TEST(Schema, NamesWhatNeverChanges) {
  EXPECT_THAT(immutable_fields(), ::testing::UnorderedElementsAre(
                                      "/spec/training/modelNameOrPath", "/spec/training/outputDir",
                                      "/spec/launcher", "/spec/managedBy"));
}

TEST(Schema, WhatPodsAreToldReadsBack) {
  Policies policies;
  policies.failure.node_health = {NodeHealthAction::Report, 7200, 35};
  policies.save_timeout_seconds = 9;  // an agent reads it in the status
  const std::string text = pod_policies_text(policies);
  EXPECT_EQ(json::parse(text), json::parse(R"({"failurePolicy": {"nodeHealth": {
      "action": "Report", "minPeerBandwidthPercent": 35}}})"));
  const auto back = policies_from_pod(text);
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->failure.node_health.action, NodeHealthAction::Report);
  EXPECT_EQ(back->failure.node_health.min_peer_bandwidth_percent, 35);
  EXPECT_EQ(policies_from_pod("{}")->failure.node_health.action, NodeHealthAction::Move);
  for (const char* bad : {"", "[]", R"({"failurePolicy": {"nodeHealth": {"action": "x"}}})"})
    EXPECT_FALSE(policies_from_pod(bad)) << bad;
}

/// Each has somebody who acts on it, a reason why it is refused, or an object around such fields.
TEST(Schema, NoFieldIsWithoutEffect) {
  const std::function<bool(const Field&)> acts = [&](const Field& field) {
    return field.actors != 0 || !field.refusal.empty() ||
           (!field.fields.empty() && std::ranges::all_of(field.fields, acts));
  };
  for (const Field& field : job_schema().fields) {
    if (field.name != "spec") continue;
    for (const Field& row : field.fields) EXPECT_TRUE(acts(row)) << row.name;
  }
}

}  // namespace
}  // namespace dsj::jobspec
