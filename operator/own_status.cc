#include "operator/own_status.h"

#include "common/json.h"
#include "job/report/status.h"

namespace dsj::op {
namespace {

using nlohmann::json;

std::optional<Time> time(const json& object, const char* name) {
  return time_from_text(json_text(object, name));
}

void put(json& object, const char* name, const std::optional<Time>& value) {
  if (value) object[name] = to_text(*value);
}

json restarts_to_json(const Restarts& restarts) {
  json object = {{"total", restarts.total},
                 {"counted", restarts.counted},
                 {"limit", restarts.limit},
                 {"savedStep", restarts.saved_step}};
  if (restarts.attempt) object["attempt"] = *restarts.attempt;
  put(object, "lastTime", restarts.last);
  put(object, "notBefore", restarts.not_before);
  return object;
}

Restarts restarts_from_json(const json& object) {
  Restarts restarts;
  if (!object.is_object()) return restarts;
  restarts.total = json_whole(object, "total").value_or(0);
  restarts.counted = json_whole(object, "counted").value_or(0);
  restarts.limit = json_whole(object, "limit").value_or(0);
  restarts.saved_step = json_whole(object, "savedStep").value_or(-1);
  if (object.contains("attempt")) restarts.attempt = json_whole(object, "attempt").value_or(0);
  restarts.last = time(object, "lastTime");
  restarts.not_before = time(object, "notBefore");
  return restarts;
}

json elastic_to_json(const ElasticState& state) {
  json object = {
      {"replicas", state.replicas}, {"wantedReplicas", state.wanted}, {"resizes", state.resizes}};
  if (!state.message.empty()) object["message"] = state.message;
  if (state.setbacks > 0) object["setbacks"] = state.setbacks;
  if (state.growable) object["growableStep"] = state.growable_step;
  put(object, "changedTime", state.changed);
  put(object, "growableTime", state.growable);
  put(object, "sparesTime", state.spares_in_vain);
  put(object, "notBefore", state.not_before);
  return object;
}

std::optional<ElasticState> elastic_from_json(const json& object) {
  if (!object.is_object()) return std::nullopt;
  return ElasticState{.replicas = static_cast<int>(json_whole(object, "replicas").value_or(0)),
                      .wanted = static_cast<int>(json_whole(object, "wantedReplicas").value_or(0)),
                      .resizes = json_whole(object, "resizes").value_or(0),
                      .setbacks = static_cast<int>(json_whole(object, "setbacks").value_or(0)),
                      .message = json_text(object, "message"),
                      .changed = time(object, "changedTime"),
                      .growable = time(object, "growableTime"),
                      .growable_step = json_whole(object, "growableStep").value_or(0),
                      .spares_in_vain = time(object, "sparesTime"),
                      .not_before = time(object, "notBefore")};
}

json unhealthy_to_json(const std::vector<UnhealthyNode>& nodes) {
  json list = json::array();
  for (const UnhealthyNode& node : nodes) {
    list.push_back({{"node", node.name},
                    {"message", node.message},
                    {"time", to_text(node.found)},
                    {"times", node.times}});
  }
  return list;
}

std::vector<UnhealthyNode> unhealthy_from_json(const json& list) {
  std::vector<UnhealthyNode> nodes;
  if (!list.is_array()) return nodes;
  for (const json& entry : list) {
    const auto found = time(entry, "time");
    const std::string name = json_text(entry, "node");
    if (!found || name.empty() || nodes.size() == kUnhealthyMax) continue;
    nodes.push_back({.name = name,
                     .message = json_text(entry, "message"),
                     .found = *found,
                     .times = static_cast<int>(json_whole(entry, "times").value_or(1))});
  }
  return nodes;
}

}  // namespace

json to_json(const OwnStatus& status) {
  json object = {{"observedGeneration", status.observed_generation},
                 {"phase", status.phase},
                 {"conditions", to_json(status.conditions)},
                 {"replicas", status.replicas},
                 {"selector", status.selector},
                 {"workers", status.workers},
                 {"restarts", restarts_to_json(status.restarts)}};
  if (!status.reason.empty()) object["reason"] = status.reason;
  put(object, "startTime", status.start);
  put(object, "completionTime", status.completion);
  put(object, "stopRequestedTime", status.stop_since);
  put(object, "incompleteTime", status.incomplete);
  if (!status.revision.empty()) {
    object["revision"] = status.revision;
    object["configMapName"] = status.config_map;
    object["worldSize"] = status.world_size;
    object["zeroStage"] = status.zero_stage;
  }
  if (!status.template_name.empty()) {
    object["template"] = {{"name", status.template_name},
                          {"generation", status.template_generation}};
  }
  if (!status.spec_hash.empty()) object["specHash"] = status.spec_hash;
  if (status.completed > 0) object["completedAttempt"] = status.completed;
  put(object, "completedAttemptTime", status.completed_since);
  if (status.incarnation > 0) object["incarnation"] = status.incarnation;
  if (status.elastic) object["elastic"] = elastic_to_json(*status.elastic);
  if (!status.unhealthy.empty()) object["unhealthyNodes"] = unhealthy_to_json(status.unhealthy);
  if (status.damage_told > 0) object["damageToldAttempt"] = status.damage_told;
  if (!status.last_failure.is_null()) object["lastFailure"] = status.last_failure;
  if (!status.failure_history.empty()) object["failureHistory"] = status.failure_history;
  return object;
}

OwnStatus own_status_from_json(const json& object) {
  OwnStatus status;
  if (!object.is_object()) return status;
  status.observed_generation = json_whole(object, "observedGeneration").value_or(0);
  status.phase = json_text(object, "phase");
  status.reason = json_text(object, "reason");
  status.conditions = conditions_from_json(object.value("conditions", json()));
  status.start = time(object, "startTime");
  status.completion = time(object, "completionTime");
  status.stop_since = time(object, "stopRequestedTime");
  status.incomplete = time(object, "incompleteTime");
  status.revision = json_text(object, "revision");
  status.spec_hash = json_text(object, "specHash");
  status.config_map = json_text(object, "configMapName");
  const json& used = json_child(object, "template");
  status.template_name = json_text(used, "name");
  status.template_generation = json_whole(used, "generation").value_or(0);
  status.incarnation = json_whole(object, "incarnation").value_or(0);
  status.completed = json_whole(object, "completedAttempt").value_or(0);
  status.completed_since = time(object, "completedAttemptTime");
  status.world_size = json_whole(object, "worldSize").value_or(0);
  status.zero_stage = static_cast<int>(json_whole(object, "zeroStage").value_or(0));
  status.replicas = json_whole(object, "replicas").value_or(0);
  status.selector = json_text(object, "selector");
  status.workers = json_text(object, "workers");
  status.restarts = restarts_from_json(object.value("restarts", json()));
  status.elastic = elastic_from_json(object.value("elastic", json()));
  status.unhealthy = unhealthy_from_json(json_child(object, "unhealthyNodes"));
  status.damage_told = json_whole(object, "damageToldAttempt").value_or(0);
  status.last_failure = object.value("lastFailure", json());
  status.failure_history = object.value("failureHistory", json::array());
  if (!status.failure_history.is_array()) status.failure_history = json::array();
  return status;
}

json own_part(const json& status) {
  json own = json::object();
  if (!status.is_object()) return own;
  for (const auto& [name, value] : status.items()) {
    if (name != report::kTraining && name != report::kCheckpoint) own[name] = value;
  }
  return own;
}

}  // namespace dsj::op
