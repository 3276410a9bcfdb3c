#include "operator/observe/own_status.h"

#include <algorithm>

#include "common/cut_text.h"
#include "common/json.h"
#include "job/report/status.h"
#include "job/report/training_status.h"

namespace dsj::op {
namespace {

using nlohmann::json;

static_assert(kOwnStatusBytesMax + report::kDocumentBytesMax + report::kResolvedBytesMax + 200 <=
              32 * 1024);

constexpr int64_t kCountMax = 1'000'000'000'000'000;

std::optional<Time> time(const json& object, const char* name) {
  return time_from_text(json_text(object, name));
}

std::optional<int64_t> whole(const json& object, const char* name) {
  const auto number = json_whole(object, name);
  return number ? std::optional(counted(*number)) : std::nullopt;
}

int number(const json& object, const char* name, int missing = 0) {
  return static_cast<int>(std::clamp<int64_t>(whole(object, name).value_or(missing), -1, 1 << 30));
}

std::string name(const json& object, const char* name) {
  return text::first_bytes(json_text(object, name), kNameBytesMax);
}

std::string sentence(const json& object, const char* name) {
  return text::first_bytes(json_text(object, name), kSentenceBytesMax);
}

void cut(std::string& text, size_t most) {
  if (text.size() > most) text = text::first_bytes(text, most);
}

void cut(std::optional<std::string>& text, size_t most) {
  if (text) cut(*text, most);
}

void cut(report::FailureRecord& failure, size_t most) {
  for (std::string* text : {&failure.time, &failure.reason})
    cut(*text, std::min(most, kNameBytesMax));
  for (auto* text : {&failure.pod, &failure.node}) cut(*text, kNameBytesMax);
  cut(failure.message, most);
  // The end of a log tells the cause.
  if (failure.last_words && failure.last_words->size() > most)
    failure.last_words = text::last_bytes(*failure.last_words, most);
  for (auto* text : {&failure.collective, &failure.missing_ranks}) cut(*text, most / 2);
}

size_t size_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace).size();
}

void put(json& object, const char* name, const std::optional<Time>& value) {
  if (value) object[name] = to_text(*value);
}

json restarts_to_json(const Restarts& restarts) {
  json object = {{"total", restarts.total},
                 {"counted", restarts.counted},
                 {"limit", restarts.limit},
                 {"savedStep", restarts.saved_step}};
  if (restarts.uncounted > 0) object["uncounted"] = restarts.uncounted;
  if (restarts.attempt) object["attempt"] = *restarts.attempt;
  put(object, "lastTime", restarts.last);
  put(object, "notBefore", restarts.not_before);
  return object;
}

Restarts restarts_from_json(const json& object) {
  Restarts restarts;
  if (!object.is_object()) return restarts;
  restarts.total = whole(object, "total").value_or(0);
  restarts.counted = whole(object, "counted").value_or(0);
  restarts.limit = whole(object, "limit").value_or(0);
  restarts.saved_step = whole(object, "savedStep").value_or(-1);
  restarts.uncounted = std::max<int64_t>(0, whole(object, "uncounted").value_or(0));
  if (object.contains("attempt")) restarts.attempt = whole(object, "attempt").value_or(0);
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
  return ElasticState{.replicas = number(object, "replicas"),
                      .wanted = number(object, "wantedReplicas"),
                      .resizes = whole(object, "resizes").value_or(0),
                      .setbacks = number(object, "setbacks"),
                      .message = sentence(object, "message"),
                      .changed = time(object, "changedTime"),
                      .growable = time(object, "growableTime"),
                      .growable_step = whole(object, "growableStep").value_or(0),
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
    put(list.back(), "until", node.until);
  }
  return list;
}

std::vector<UnhealthyNode> unhealthy_from_json(const json& list) {
  std::vector<UnhealthyNode> nodes;
  if (!list.is_array()) return nodes;
  for (const json& entry : list) {
    const auto found = time(entry, "time");
    const std::string node = name(entry, "node");
    if (!found || node.empty() || nodes.size() == kUnhealthyMax) continue;
    nodes.push_back({.name = node,
                     .message = sentence(entry, "message"),
                     .found = *found,
                     .until = time(entry, "until"),
                     .times = number(entry, "times", 1)});
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
  if (status.save_timeout_seconds > 0) {
    object["timeouts"] = {{"saveSeconds", status.save_timeout_seconds},
                          {"stepSeconds", status.step_timeout_seconds}};
  }
  if (!status.spec_hash.empty()) object["specHash"] = status.spec_hash;
  if (status.completed > 0) object["completedAttempt"] = status.completed;
  put(object, "completedAttemptTime", status.completed_since);
  if (status.incarnation > 0) object["incarnation"] = status.incarnation;
  if (status.key_run > 0) object[kKeyRun] = status.key_run;
  if (!status.key_uid.empty()) object[kKeyUid] = status.key_uid;
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
  status.observed_generation = whole(object, "observedGeneration").value_or(0);
  status.phase = name(object, "phase");
  status.reason = name(object, "reason");
  status.conditions = conditions_from_json(object.value("conditions", json()));
  status.start = time(object, "startTime");
  status.completion = time(object, "completionTime");
  status.stop_since = time(object, "stopRequestedTime");
  status.incomplete = time(object, "incompleteTime");
  status.revision = name(object, "revision");
  status.spec_hash = name(object, "specHash");
  status.config_map = name(object, "configMapName");
  const json& used = json_child(object, "template");
  status.template_name = name(used, "name");
  status.template_generation = whole(used, "generation").value_or(0);
  const json& timeouts = json_child(object, "timeouts");
  status.save_timeout_seconds = whole(timeouts, "saveSeconds").value_or(0);
  status.step_timeout_seconds = whole(timeouts, "stepSeconds").value_or(0);
  status.incarnation = whole(object, "incarnation").value_or(0);
  if (status.incarnation > kPodNumberMax) status.incarnation = 0;
  status.key_run = whole(object, kKeyRun).value_or(0);
  if (status.key_run > 0) status.key_uid = name(object, kKeyUid);
  status.completed = whole(object, "completedAttempt").value_or(0);
  status.completed_since = time(object, "completedAttemptTime");
  status.world_size = whole(object, "worldSize").value_or(0);
  status.zero_stage = number(object, "zeroStage");
  status.replicas = whole(object, "replicas").value_or(0);
  status.selector = name(object, "selector");
  status.workers = name(object, "workers");
  status.restarts = restarts_from_json(object.value("restarts", json()));
  status.elastic = elastic_from_json(object.value("elastic", json()));
  status.unhealthy = unhealthy_from_json(json_child(object, "unhealthyNodes"));
  status.damage_told = whole(object, "damageToldAttempt").value_or(0);
  if (const auto last = failure_record(json_child(object, "lastFailure")))
    status.last_failure = status_json(*last);
  const json& history = json_child(object, "failureHistory");
  const size_t size = history.is_array() ? history.size() : 0;
  for (size_t i = size - std::min(size, kHistoryMax); i < size; ++i) {
    if (const auto one = failure_record(history[i]))
      status.failure_history.push_back(status_json(*one));
  }
  return status;
}

int64_t counted(int64_t number) {
  return std::clamp<int64_t>(number, -1, kCountMax);
}

std::optional<report::FailureRecord> failure_record(const json& object) {
  auto record = report::failure_from_status(object);
  if (!record) return std::nullopt;
  cut(*record, kSentenceBytesMax);
  for (auto* number : {&record->attempt, &record->step, &record->rank, &record->exit_code,
                       &record->signal, &record->worker, &record->saved_step}) {
    if (*number) *number = counted(**number);
  }
  return record;
}

void keep_small(OwnStatus& status) {
  for (Condition& condition : status.conditions) cut(condition.message, kMessageBytesMax);
  size_t size = size_of(to_json(status));
  const auto fits = [&] { return size <= kOwnStatusBytesMax; };
  const auto cut_text = [&](std::string& text, size_t most) {
    const size_t before = size_of(text);
    cut(text, most);
    size -= before - size_of(text);
  };
  const auto cut_failure = [&](json& failure, size_t most) {
    auto record = report::failure_from_status(failure);
    if (!record) return;
    const size_t before = size_of(failure);
    cut(*record, most);
    failure = status_json(*record);
    size -= before - size_of(failure);
  };
  for (const size_t room : {300u, 100u, 20u}) {
    for (size_t i = 0; i + 1 < status.failure_history.size() && !fits(); ++i)
      cut_failure(status.failure_history[i], room);
    for (size_t i = 0; i + 1 < status.unhealthy.size() && !fits(); ++i)
      cut_text(status.unhealthy[i].message, room);
  }
  while (status.failure_history.size() > 1 && !fits()) {
    status.failure_history.erase(status.failure_history.begin());
    size = size_of(to_json(status));
  }
  while (status.unhealthy.size() > 1 && !fits()) {
    status.unhealthy.erase(status.unhealthy.begin());
    size = size_of(to_json(status));
  }
  for (const size_t room : {1000u, 300u, 100u}) {
    for (Condition& condition : status.conditions)
      if (!fits()) cut_text(condition.message, room);
    if (fits()) continue;
    cut_failure(status.last_failure, room);
    for (json& failure : status.failure_history) cut_failure(failure, room);
  }
}

json own_part(const json& status) {
  json own = json::object();
  if (!status.is_object()) return own;
  for (const auto& [name, value] : status.items()) {
    if (name != report::kTraining && name != report::kCheckpoint) own[name] = value;
  }
  // The CRD's default, before any operator has written the status.
  if (json_whole(own, "observedGeneration") == -1) own.erase("observedGeneration");
  // Conditions of other programs are not the operator's.
  if (const auto all = own.find("conditions"); all != own.end() && all->is_array()) {
    json ours = json::array();
    for (json& one : *all)
      if (is_condition_type(json_text(one, "type"))) ours.push_back(std::move(one));
    *all = std::move(ours);
  }
  return own;
}

}  // namespace dsj::op
