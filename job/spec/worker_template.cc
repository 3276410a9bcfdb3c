#include "job/spec/worker_template.h"

#include <algorithm>
#include <cstring>

#include "common/json.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;

/// Lists whose elements have a name, as in Kubernetes' strategic merge.
struct NamedList {
  const char* list;
  const char* name;
  bool merged;  ///< else an element replaces the one of that name: its fields exclude each other
};
constexpr NamedList kNamedLists[] = {
    {"containers", "name", true},
    {"initContainers", "name", true},
    {"env", "name", false},
    {"volumes", "name", false},
    {"volumeMounts", "mountPath", false},
    {"volumeDevices", "devicePath", false},
    {"ports", "containerPort", false},
    {"imagePullSecrets", "name", false},
    {"hostAliases", "ip", false},
    {"resourceClaims", "name", false},
};

/// Objects that have exactly one of several fields.
constexpr const char* kOneOf[] = {"livenessProbe", "readinessProbe", "startupProbe",   "postStart",
                                  "preStop",       "seccompProfile", "appArmorProfile"};

const NamedList* named_list(const std::string& name) {
  const auto found =
      std::ranges::find_if(kNamedLists, [&](const NamedList& one) { return name == one.list; });
  return found == std::end(kNamedLists) ? nullptr : found;
}

json merged(json base, const json& own);

json merged_list(json base, const json& own, const NamedList& rule) {
  for (const json& item : own) {
    const auto same = std::ranges::find_if(base, [&](const json& other) {
      return other.is_object() && item.is_object() && item.contains(rule.name) &&
             other.contains(rule.name) && other[rule.name] == item[rule.name];
    });
    if (same == base.end())
      base.push_back(item);
    else
      *same = rule.merged ? merged(std::move(*same), item) : item;
  }
  return base;
}

json merged(json base, const json& own) {
  if (!base.is_object() || !own.is_object()) return own.is_null() ? base : own;
  for (const auto& [name, value] : own.items()) {
    if (value.is_null()) continue;
    json& field = base[name];
    const NamedList* rule = named_list(name);
    const bool replaces = std::ranges::any_of(
        kOneOf, [&](const char* other) { return std::strcmp(other, name.c_str()) == 0; });
    if (rule && field.is_array() && value.is_array())
      field = merged_list(std::move(field), value, *rule);
    else
      field = replaces ? value : merged(std::move(field), value);
  }
  return base;
}

}  // namespace

std::string template_ref(const json& spec) {
  return json_text(json_child(json_child(spec, "workers"), "templateRef"), "name");
}

std::string to_text(const WorkerTemplate& source) {
  const json object = {
      {"name", source.name}, {"generation", source.generation}, {"template", source.pod}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<WorkerTemplate> worker_template_from_text(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  return WorkerTemplate{.name = json_text(object, "name"),
                        .generation = json_whole(object, "generation").value_or(0),
                        .pod = json_child(object, "template")};
}

json merge_pod_templates(json base, const json& own) {
  return merged(std::move(base), own);
}

json with_pod_template(json spec, const json& pod) {
  json& workers = spec["workers"];
  if (!pod.is_null()) workers["template"] = pod;
  workers.erase("templateRef");
  return spec;
}

}  // namespace dsj::jobspec
