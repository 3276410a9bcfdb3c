#include "operator/observe/conditions.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "common/cut_text.h"
#include "operator/observe/contest.h"

namespace dsj::op {
namespace {

using nlohmann::json;
using Tell = ConditionKind::Tell;

const ConditionKind* kind_of(const std::string& type) {
  for (const auto& kind : condition_kinds()) {
    if (type == kind.type) return &kind;
  }
  return nullptr;
}

/// Failure reasons may also come from agents, kubelets and users' programs. Keeps the characters
/// that an API server accepts in a reason: a CamelCase word.
std::string word_of(const std::string& reason) {
  std::string word;
  for (const unsigned char c : reason)
    if (std::isalpha(c) || (!word.empty() && (std::isdigit(c) || c == '_')))
      word += static_cast<char>(c);
  return word.empty() ? "RankFailed" : word;
}

Tell tell_of(const Condition& condition) {
  const ConditionKind* kind = kind_of(condition.type);
  if (kind == nullptr) return Tell::No;
  for (const auto& reason : kind->reasons) {
    if (condition.reason == reason.name) return reason.tell;
  }
  // The event of a failure carries the failure's own reason, so here it is published only if it
  // ends the job.
  return condition.status == "True" && condition.type == "Failed" ? Tell::Warning : Tell::No;
}

std::string text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

const std::vector<ConditionKind>& condition_kinds() {
  static const std::vector<ConditionKind> table = {
      {"Accepted",
       {{"ConfigAccepted", Tell::Normal},
        {"ConfigInvalid", Tell::Warning},
        {"Unsupported", Tell::Warning},
        {"ConfigMapMissing", Tell::Warning},
        {"TemplateMissing", Tell::Warning},
        {"PodRefused", Tell::Warning}}},
      {"Suspended",
       {{"NotSuspended", Tell::No},
        {"Suspending", Tell::Normal},
        {"Saved", Tell::No},
        {"NotSaved", Tell::No},
        {"Suspended", Tell::Normal},
        {"SuspendedWithoutCheckpoint", Tell::Warning},
        {"Resumed", Tell::Normal}}},
      {"Scheduled",
       {{"AllScheduled", Tell::No},
        {"NoPods", Tell::No},
        {"Waiting", Tell::No},
        {"Unschedulable", Tell::Warning},
        {"QuotaExceeded", Tell::Warning},
        {"Forbidden", Tell::Warning},
        {"NamespaceTerminating", Tell::No},
        {"EarlierJob", Tell::Normal},
        {"NameTaken", Tell::Warning},
        {"Invalid", Tell::Warning},
        {"CannotCreate", Tell::Warning},
        {"RateLimited", Tell::Warning}}},
      {"Initialized",
       {{"GangComplete", Tell::No},
        {"NoPods", Tell::No},
        {"WaitingForPods", Tell::No},
        {"WaitingForGang", Tell::No},
        {"Initializing", Tell::No},
        {"ImagePullBackOff", Tell::Warning},
        {"ContainerCannotStart", Tell::Warning}}},
      {"DataReady", {{"Waiting", Tell::No}, {"Fetching", Tell::Normal}, {"Fetched", Tell::Normal}}},
      {"Running",
       {{"AttemptRunning", Tell::Normal},
        {"NotStarted", Tell::No},
        {"Stopped", Tell::No},
        {"Stopping", Tell::No},
        {"Restarting", Tell::No},
        {"Finished", Tell::No}}},
      {"Restarting",
       {{"NotRestarting", Tell::No}, {"SpecChanged", Tell::Normal}, {"Resized", Tell::No}}},
      {"Progressing",
       {{"StepsAdvance", Tell::No},
        {"Stragglers", Tell::Warning},
        {"NoReport", Tell::Warning},
        {"NoSteps", Tell::No},
        {"NotRunning", Tell::No}}},
      {kContested,
       {{"Reverted", Tell::Warning}, {"Deleted", Tell::Warning}, {"LabelsChanged", Tell::Warning}}},
      {"Complete", {{"NotFinished", Tell::No}, {"Completed", Tell::Normal}}},
      {"Failed",
       {{"NotFinished", Tell::No},
        {"DeadlineExceeded", Tell::Warning},
        {"StartupDeadlineExceeded", Tell::Warning},
        {"BackoffLimitExceeded", Tell::Warning},
        {"FailurePolicy", Tell::Warning}}},
      {"Ready", {}},
      {"Reconciling", {}},
      {kStalled, {{"OperatorError", Tell::Warning}}},
  };
  return table;
}

bool is_condition_type(const std::string& type) {
  return kind_of(type) != nullptr;
}

void set_condition(Conditions& conditions, Condition wanted) {
  const ConditionKind* kind = kind_of(wanted.type);
  if (kind == nullptr) throw std::logic_error("there is no condition " + wanted.type);
  const bool listed =
      std::any_of(kind->reasons.begin(), kind->reasons.end(),
                  [&](const ConditionKind::Reason& r) { return wanted.reason == r.name; });
  const bool named_elsewhere = wanted.type == "Failed" || wanted.type == "Restarting" ||
                               wanted.type == "Ready" || wanted.type == "Reconciling" ||
                               wanted.type == kStalled;
  if (!listed && !named_elsewhere)
    throw std::logic_error("condition " + wanted.type + " has no reason " + wanted.reason);
  if (!listed) wanted.reason = word_of(wanted.reason);
  for (Condition& condition : conditions) {
    if (condition.type != wanted.type) continue;
    if (condition.status == wanted.status) wanted.since = condition.since;
    condition = std::move(wanted);
    return;
  }
  conditions.push_back(std::move(wanted));
}

const Condition* find_condition(const Conditions& conditions, const std::string& type) {
  for (const Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

bool is_true(const Conditions& conditions, const std::string& type) {
  const Condition* found = find_condition(conditions, type);
  return found != nullptr && found->status == "True";
}

std::string reason_of(const std::string& phase, const Conditions& conditions) {
  auto reason = [&](const char* type) {
    const Condition* found = find_condition(conditions, type);
    return found ? found->reason : std::string();
  };
  auto warns = [&](const char* type) {
    const Condition* found = find_condition(conditions, type);
    return found && tell_of(*found) == Tell::Warning;
  };
  if (phase == "Complete") return {};
  if (reason(kStalled) == "OperatorError") return "OperatorError";
  if (phase == "Failed") return reason("Failed");
  for (const char* type : {"Accepted", "Suspended", "Scheduled", "Initialized", "Progressing"}) {
    if (warns(type)) return reason(type);
  }
  if (phase == "Pending") return reason("Scheduled");
  if (phase == "Starting") return reason("Initialized");
  if (phase == "Restarting" && is_true(conditions, "Restarting")) return reason("Restarting");
  return {};
}

json to_json(const Conditions& conditions) {
  json list = json::array();
  for (const Condition& condition : conditions) {
    list.push_back({{"type", condition.type},
                    {"status", condition.status},
                    {"reason", condition.reason},
                    {"message", condition.message},
                    {"observedGeneration", condition.observed_generation},
                    {"lastTransitionTime", to_text(condition.since)}});
  }
  return list;
}

Conditions conditions_from_json(const json& list) {
  Conditions conditions;
  if (!list.is_array()) return conditions;
  for (const json& object : list) {
    if (!object.is_object()) continue;
    const std::string type = text(object, "type");
    if (!is_condition_type(type) || find_condition(conditions, type)) continue;
    const auto generation = object.find("observedGeneration");
    const std::string status = text(object, "status");
    conditions.push_back(
        {.type = type,
         .status = status == "True" || status == "False" ? status : "Unknown",
         .reason = text::first_bytes(text(object, "reason"), 100),
         .message = text::first_bytes(text(object, "message"), 4000),
         .observed_generation = generation != object.end() && generation->is_number_integer()
                                    ? generation->get<int64_t>()
                                    : 0,
         .since = time_from_text(text(object, "lastTransitionTime")).value_or(Time{})});
  }
  return conditions;
}

std::vector<Event> events_of(const Conditions& before, const Conditions& after) {
  std::vector<Event> events;
  for (const Condition& condition : after) {
    const Condition* old = find_condition(before, condition.type);
    if (old && old->status == condition.status && old->reason == condition.reason) continue;
    const Tell tell = tell_of(condition);
    if (tell == Tell::No) continue;
    events.push_back(
        {tell == Tell::Warning ? "Warning" : "Normal", condition.reason, condition.message});
  }
  return events;
}

}  // namespace dsj::op
