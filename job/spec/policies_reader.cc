#include "job/spec/policies_reader.h"

namespace dsj::jobspec {
namespace {

using nlohmann::json;
using Severity = FieldReader::Severity;

constexpr int64_t kSecondsMax = 365LL * 24 * 3600;
constexpr size_t kRulesMax = 20;

void optional_seconds(const json& object, const std::string& path, const char* name, int64_t least,
                      FieldReader& reader, std::optional<int64_t>& field) {
  int64_t seconds = 0;
  if (reader.whole(object, path, name, least, kSecondsMax, seconds)) field = seconds;
}

/// The name of an object; empty: missing or wrong.
std::string object_name(const json& object, const std::string& path, const char* name,
                        FieldReader& reader) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  const std::string text = found->is_string() ? found->get<std::string>() : "";
  const bool good =
      !text.empty() && text.size() <= 63 &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
  if (good) return text;
  reader.report(Severity::Error, FieldReader::join(path, name),
                "found " + FieldReader::shown(*found) + ", expected the name of an object");
  return {};
}

void read_scheduling(const json& object, FieldReader& reader, Scheduling& scheduling) {
  const std::string path = "spec.runPolicy.schedulingPolicy";
  reader.fields(object, path);
  std::string scheduler;
  reader.choice(object, path, "scheduler", {"volcano", "kueue", "scheduler-plugins"}, scheduler);
  if (!object.contains("scheduler"))
    reader.report(Severity::Error, path + ".scheduler", "a field is missing", "volcano or kueue");
  if (scheduler == "scheduler-plugins")
    reader.report(Severity::Unsupported, path + ".scheduler",
                  "not built: its pod groups know neither queues nor priorities",
                  "volcano places a gang as a whole, too");
  scheduling.scheduler = scheduler == "volcano" ? GangScheduler::Volcano
                         : scheduler == "kueue" ? GangScheduler::Kueue
                                                : GangScheduler::None;
  scheduling.queue = object_name(object, path, "queue", reader);
  scheduling.priority_class = object_name(object, path, "priorityClass", reader);
  if (scheduler == "kueue" && !object.contains("queue"))
    reader.report(Severity::Error, path + ".queue", "a field is missing",
                  "name a LocalQueue of the job's namespace");
  int64_t least = 0;
  if (reader.whole(object, path, "minAvailable", 1, 65'536, least))
    scheduling.min_available = least;
  if (object.contains("scheduleTimeoutSeconds"))
    reader.report(Severity::Unsupported, path + ".scheduleTimeoutSeconds",
                  "neither Volcano nor Kueue has such a time",
                  "runPolicy.startupDeadlineSeconds ends a job that does not start");
}

void read_run(const json& object, FieldReader& reader, RunPolicy& run) {
  const std::string path = "spec.runPolicy";
  reader.fields(object, path);
  optional_seconds(object, path, "activeDeadlineSeconds", 1, reader, run.active_deadline_seconds);
  optional_seconds(object, path, "startupDeadlineSeconds", 1, reader, run.startup_deadline_seconds);
  reader.whole(object, path, "recoveryDeadlineSeconds", 1, kSecondsMax,
               run.recovery_deadline_seconds);
  optional_seconds(object, path, "ttlSecondsAfterFinished", 0, reader,
                   run.ttl_seconds_after_finished);
  const std::string scheduling = path + ".schedulingPolicy";
  if (const json* policy = reader.object(object, "schedulingPolicy", scheduling))
    read_scheduling(*policy, reader, run.scheduling);
  std::string clean = "Running";
  reader.choice(object, path, "cleanPodPolicy", {"Running", "All", "None"}, clean);
  run.clean_pods = clean == "All"    ? CleanPods::All
                   : clean == "None" ? CleanPods::None
                                     : CleanPods::Running;
}

void read_exit_codes(const json& object, const std::string& path, FieldReader& reader,
                     FailureRule& rule) {
  reader.fields(object, path, "spec.failurePolicy.rules[].onExitCodes");
  std::string in = "In";
  reader.choice(object, path, "operator", {"In", "NotIn"}, in);
  rule.exit_codes_not_in = in == "NotIn";
  const auto values = object.find("values");
  if (values == object.end() || !values->is_array() || values->empty()) {
    reader.report(Severity::Error, path + ".values", "expected exit codes", "values: [137]");
    return;
  }
  for (const json& value : *values) {
    if (value.is_number_integer() && value >= 1 && value <= 255) {
      rule.exit_codes.push_back(value);
    } else {
      reader.report(Severity::Error, path + ".values",
                    "found " + FieldReader::shown(value) + ", expected exit codes from 1 to 255");
    }
  }
}

FailureRule read_rule(const json& object, const std::string& path, FieldReader& reader) {
  FailureRule rule;
  reader.fields(object, path, "spec.failurePolicy.rules[]");
  if (object.contains("name") && object["name"].is_string()) rule.name = object["name"];
  std::string action;
  reader.choice(object, path, "action", {"FailJob", "Restart", "RestartUncounted"}, action);
  if (!object.contains("action"))
    reader.report(Severity::Error, path + ".action", "a field is missing",
                  "FailJob, Restart or RestartUncounted");
  rule.action = action == "FailJob"            ? FailureAction::FailJob
                : action == "RestartUncounted" ? FailureAction::RestartUncounted
                                               : FailureAction::Restart;
  if (const json* codes = reader.object(object, "onExitCodes", path + ".onExitCodes"))
    read_exit_codes(*codes, path + ".onExitCodes", reader, rule);
  reader.words(object, path, "onReasons", rule.reasons);
  reader.words(object, path, "onPodConditions", rule.pod_conditions);
  if (rule.exit_codes.empty() && rule.reasons.empty() && rule.pod_conditions.empty())
    reader.report(Severity::Error, path, "the rule would take every failure",
                  "give onExitCodes, onReasons or onPodConditions");
  return rule;
}

/// Above it a usual difference between nodes would count.
constexpr int64_t kPeerBandwidthMax = 90;

void read_node_health(const json& object, const RunPolicy& run, FieldReader& reader,
                      NodeHealth& health) {
  const std::string at = "spec.failurePolicy.nodeHealth";
  const json* node = reader.object(object, "nodeHealth", at);
  const bool kueue = run.scheduling.scheduler == GangScheduler::Kueue;
  if (kueue) health.action = NodeHealthAction::Report;
  if (node == nullptr) return;
  reader.fields(*node, at);
  std::string action;
  reader.choice(*node, at, "action", {"Off", "Report", "Move"}, action);
  if (action == "Off") health.action = NodeHealthAction::Off;
  if (action == "Report") health.action = NodeHealthAction::Report;
  if (action == "Move" && kueue)
    reader.report(Severity::Error, at + ".action",
                  "Kueue takes a pod into a running group only if it looks like the one before it: "
                  "the successor could not avoid the node",
                  "Report or Off");
  reader.whole(*node, at, "avoidSeconds", 600, kSecondsMax, health.avoid_seconds);
  reader.whole(*node, at, "minPeerBandwidthPercent", 0, kPeerBandwidthMax,
               health.min_peer_bandwidth_percent);
}

void read_failure(const json& object, const RunPolicy& run, FieldReader& reader,
                  FailurePolicy& failure) {
  const std::string path = "spec.failurePolicy";
  reader.fields(object, path);
  if (const auto rules = object.find("rules"); rules != object.end() && !rules->is_null()) {
    if (!rules->is_array() || rules->size() > kRulesMax) {
      reader.report(Severity::Error, path + ".rules",
                    "expected a list of at most " + std::to_string(kRulesMax) + " rules");
    } else {
      for (size_t i = 0; i < rules->size(); ++i) {
        const std::string at = path + ".rules[" + std::to_string(i) + "]";
        if ((*rules)[i].is_object())
          failure.rules.push_back(read_rule((*rules)[i], at, reader));
        else
          reader.report(Severity::Error, at, "expected an object");
      }
    }
  }
  read_node_health(object, run, reader, failure.node_health);
  const std::string at = path + ".nodeFailure";
  const json* node = reader.object(object, "nodeFailure", at);
  if (node == nullptr) return;
  reader.fields(*node, at);
  reader.whole(*node, at, "graceSeconds", 0, kSecondsMax, failure.node_grace_seconds);
  // A cut-off node's agents end their ranks within ten seconds. No others may start before that.
  reader.whole(*node, at, "forceDeleteAfterSeconds", 15, kSecondsMax,
               failure.force_delete_after_seconds);
  reader.flag(*node, at, "excludeFailedNodes", failure.exclude_failed_nodes);
}

void read_elastic(const json& object, const RunPolicy& run, FieldReader& reader,
                  std::optional<Elastic>& field) {
  const std::string path = "spec.elastic";
  reader.fields(object, path);
  int64_t least = 0, most = 0;
  for (const auto& [name, bound] : {std::pair{"minReplicas", &least}, {"maxReplicas", &most}}) {
    if (!object.contains(name))
      reader.report(Severity::Error, FieldReader::join(path, name), "a field is missing",
                    "elastic: {minReplicas: 2, maxReplicas: 4}");
    else
      reader.whole(object, path, name, 1, 65'536, *bound);
  }
  Elastic elastic;
  reader.whole(object, path, "shrinkAfterSeconds", 1, kSecondsMax, elastic.shrink_after_seconds);
  reader.whole(object, path, "growAfterSeconds", 1, kSecondsMax, elastic.grow_after_seconds);
  if (elastic.shrink_after_seconds > run.recovery_deadline_seconds)
    reader.report(Severity::Error, path + ".shrinkAfterSeconds",
                  std::to_string(elastic.shrink_after_seconds) +
                      " s is beyond runPolicy.recoveryDeadlineSeconds, " +
                      std::to_string(run.recovery_deadline_seconds) +
                      ": all pods would be given back first");
  if (least == 0 || most == 0) return;
  if (least > most) {
    reader.report(
        Severity::Error, path,
        "minReplicas " + std::to_string(least) + " is above maxReplicas " + std::to_string(most));
    return;
  }
  elastic.min_replicas = static_cast<int>(least);
  elastic.max_replicas = static_cast<int>(most);
  field = elastic;
}

}  // namespace

Policies read_policies(const json& spec, FieldReader& reader) {
  Policies policies;
  reader.flag(spec, "spec", "suspend", policies.suspend);
  if (const json* run = reader.object(spec, "runPolicy", "spec.runPolicy"))
    read_run(*run, reader, policies.run);
  const json* failure = reader.object(spec, "failurePolicy", "spec.failurePolicy");
  read_failure(failure ? *failure : json::object(), policies.run, reader, policies.failure);
  if (const json* elastic = reader.object(spec, "elastic", "spec.elastic"))
    read_elastic(*elastic, policies.run, reader, policies.elastic);
  if (const json* liveness = reader.object(spec, "liveness", "spec.liveness")) {
    reader.fields(*liveness, "spec.liveness");
    reader.whole(*liveness, "spec.liveness", "stepTimeoutSeconds", 1, kSecondsMax,
                 policies.step_timeout_seconds);
  }
  if (const json* checkpoint = reader.object(spec, "checkpoint", "spec.checkpoint")) {
    const std::string at = "spec.checkpoint.onSuspend";
    reader.fields(*checkpoint, "spec.checkpoint");
    if (const json* suspend = reader.object(*checkpoint, "onSuspend", at)) {
      reader.fields(*suspend, at);
      reader.whole(*suspend, at, "timeoutSeconds", 1, kSecondsMax, policies.save_timeout_seconds);
    }
  }
  return policies;
}

}  // namespace dsj::jobspec
