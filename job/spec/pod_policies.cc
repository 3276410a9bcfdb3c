#include "job/spec/pod_policies.h"

#include <algorithm>

#include "common/json.h"
#include "job/spec/cluster_spec.h"
#include "job/spec/field_reader.h"
#include "job/spec/schema.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

const Field& spec_row() {
  static const Field& row =
      *std::ranges::find(job_schema().fields, std::string("spec"), &Field::name);
  return row;
}

json written(const Field& object, void* owner) {
  json made = json::object();
  for (const Field& field : object.fields) {
    json value;
    if (field.type == Type::Object && !field.target.reset)
      value = written(field, field.target.reach ? field.target.reach(owner) : owner);
    else if ((field.actors & kPod) && field.target.get)
      value = field.target.get(owner, field.choices);
    if (!value.is_null() && !value.empty()) made[field.name] = std::move(value);
  }
  return made;
}

/// The fields of `found` that pods get.
json picked(const Field& object, const json& found) {
  json made = json::object();
  for (const Field& field : object.fields) {
    json value = json_child(found, field.name.c_str());
    if (field.type == Type::Object) value = picked(field, value);
    const bool passed = field.type == Type::Object ? !value.empty() : (field.actors & kPod) != 0;
    if (passed) made[field.name] = std::move(value);
  }
  return made;
}

}  // namespace

std::string pod_policies_text(const Policies& policies) {
  Job job;
  job.policies = policies;
  return written(spec_row(), &job).dump();
}

Result<Policies> policies_from_pod(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return bad_input("expected an object", kEnvPolicies);
  Job job;
  std::vector<dsconfig::Finding> findings;
  FieldReader(findings).read(spec_row(), picked(spec_row(), object), "", &job);
  if (!findings.empty()) return bad_input(to_sentence(findings.front()), kEnvPolicies);
  return job.policies;
}

}  // namespace dsj::jobspec
