#include "operator/own_status.h"

namespace dsj::op {
namespace {

using nlohmann::json;

int64_t whole(const json& object, const char* name, int64_t otherwise = 0) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : otherwise;
}

std::string text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<Time> time(const json& object, const char* name) {
  return time_from_text(text(object, name));
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
  restarts.total = whole(object, "total");
  restarts.counted = whole(object, "counted");
  restarts.limit = whole(object, "limit");
  restarts.saved_step = whole(object, "savedStep", -1);
  if (object.contains("attempt")) restarts.attempt = whole(object, "attempt");
  restarts.last = time(object, "lastTime");
  restarts.not_before = time(object, "notBefore");
  return restarts;
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
  if (!status.spec_hash.empty()) object["specHash"] = status.spec_hash;
  if (status.completed > 0) object["completedAttempt"] = status.completed;
  if (status.incarnation > 0) object["incarnation"] = status.incarnation;
  if (!status.last_failure.is_null()) object["lastFailure"] = status.last_failure;
  if (!status.failure_history.empty()) object["failureHistory"] = status.failure_history;
  return object;
}

OwnStatus own_status_from_json(const json& object) {
  OwnStatus status;
  if (!object.is_object()) return status;
  status.observed_generation = whole(object, "observedGeneration");
  status.phase = text(object, "phase");
  status.conditions = conditions_from_json(object.value("conditions", json()));
  status.start = time(object, "startTime");
  status.completion = time(object, "completionTime");
  status.stop_since = time(object, "stopRequestedTime");
  status.incomplete = time(object, "incompleteTime");
  status.revision = text(object, "revision");
  status.spec_hash = text(object, "specHash");
  status.config_map = text(object, "configMapName");
  status.incarnation = whole(object, "incarnation");
  status.completed = whole(object, "completedAttempt");
  status.world_size = whole(object, "worldSize");
  status.zero_stage = static_cast<int>(whole(object, "zeroStage"));
  status.replicas = whole(object, "replicas");
  status.selector = text(object, "selector");
  status.workers = text(object, "workers");
  status.restarts = restarts_from_json(object.value("restarts", json()));
  status.last_failure = object.value("lastFailure", json());
  status.failure_history = object.value("failureHistory", json::array());
  if (!status.failure_history.is_array()) status.failure_history = json::array();
  return status;
}

json own_part(const json& status) {
  json own = json::object();
  if (!status.is_object()) return own;
  for (const auto& [name, value] : status.items()) {
    if (name != "training" && name != "checkpoint") own[name] = value;
  }
  return own;
}

}  // namespace dsj::op
