#include "operator/decide/readiness.h"

#include <algorithm>

#include "common/cut_text.h"
#include "operator/observe/own_status.h"

namespace dsj::op {
namespace {

enum class Standing { Ready, Reconciling, Stalled };

struct Readiness {
  Standing standing;
  std::string reason, message;
};

Readiness like(Standing standing, const Condition& condition) {
  return {standing, condition.reason, condition.message};
}

bool waits_for_an_object(const Condition& refused) {
  return refused.reason == "ConfigMapMissing" || refused.reason == "TemplateMissing";
}

Readiness readiness_of(const std::string& phase, const std::string& reason,
                       const Conditions& conditions) {
  const auto condition = [&](const char* type) { return find_condition(conditions, type); };
  if (is_true(conditions, "Complete")) return like(Standing::Ready, *condition("Complete"));
  if (is_true(conditions, "Failed")) return like(Standing::Stalled, *condition("Failed"));
  const Condition* accepted = condition("Accepted");
  if (accepted && accepted->status == "False")
    return like(waits_for_an_object(*accepted) ? Standing::Reconciling : Standing::Stalled,
                *accepted);
  if (phase == "Suspended") return {Standing::Ready, phase, "suspended, as spec.suspend asks"};
  const Condition* progressing = condition("Progressing");
  const bool silent = progressing && progressing->status == "False";
  if (phase == "Running" && !silent) return like(Standing::Ready, *condition("Running"));
  if (phase == "Running") return like(Standing::Reconciling, *progressing);
  const auto explains = [&](const Condition& one) {
    return !reason.empty() && one.reason == reason && one.type != kReady &&
           one.type != kReconciling && one.type != kStalled;
  };
  const auto found = std::ranges::find_if(conditions, explains);
  if (found != conditions.end()) return like(Standing::Reconciling, *found);
  return {Standing::Reconciling, reason.empty() ? phase : reason, ""};
}

void note(const Readiness& readiness, int64_t generation, Time now, Conditions& conditions) {
  const bool ready = readiness.standing == Standing::Ready;
  const auto set = [&](const char* type, bool yes) {
    set_condition(conditions, {.type = type,
                               .status = yes ? "True" : "False",
                               .reason = readiness.reason,
                               .message = text::first_bytes(readiness.message, kSentenceBytesMax),
                               .observed_generation = generation,
                               .since = now});
  };
  const auto keep = [&](const char* type, bool yes) {
    if (yes) return set(type, true);
    std::erase_if(conditions, [&](const Condition& one) { return one.type == type; });
  };
  set(kReady, ready);
  keep(kReconciling, readiness.standing == Standing::Reconciling);
  keep(kStalled, readiness.standing == Standing::Stalled);
}

}  // namespace

void set_readiness(const std::string& phase, const std::string& reason, int64_t generation,
                   Time now, Conditions& conditions) {
  note(readiness_of(phase, reason, conditions), generation, now, conditions);
}

void set_broken_off(const std::string& why, int64_t generation, Time now, Conditions& conditions) {
  note({Standing::Stalled, "OperatorError",
        "the operator failed on this job and tries again within a minute; other jobs are not "
        "affected: " +
            why},
       generation, now, conditions);
}

}  // namespace dsj::op
