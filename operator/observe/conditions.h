// The conditions of a job (metav1.Condition), and the closed list of their reasons.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "operator/observe/times.h"

namespace dsj::op {

struct Condition {
  std::string type, status, reason, message;  ///< status: True, False, Unknown
  int64_t observed_generation = 0;
  Time since{};  ///< lastTransitionTime of `status`
};
using Conditions = std::vector<Condition>;

/// One row per type, in the order in which they are shown: its reasons, and whether a reason is
/// told as a Warning event, as a Normal one, or not.
struct ConditionKind {
  enum class Tell { No, Normal, Warning };
  struct Reason {
    const char* name;
    Tell tell;
  };
  const char* type;
  std::vector<Reason> reasons;
};
const std::vector<ConditionKind>& condition_kinds();

bool is_condition_type(const std::string& type);

/// Sets a condition. `since` stays while the status stays. Throws if type or reason is not in the list: a defect that
/// costs the job its pass (controller.h). A reason of Failed or Restarting may also be an agent's own, and one of Ready,
/// Reconciling or Stalled is another condition's (readiness.h).
void set_condition(Conditions& conditions, Condition wanted);
const Condition* find_condition(const Conditions& conditions, const std::string& type);
bool is_true(const Conditions& conditions, const std::string& type);

/// The reason of the condition that explains a phase; empty: the phase says it all. A spec that is refused while the
/// one before stays in force comes first, then what a job waits for.
std::string reason_of(const std::string& phase, const Conditions& conditions);

/// readiness.h. With reason OperatorError: a pass over the job was broken off; the next that is not says otherwise.
inline constexpr char kStalled[] = "Stalled";

nlohmann::json to_json(const Conditions& conditions);
/// Of each type that the list has, the first. Texts are cut.
Conditions conditions_from_json(const nlohmann::json& list);

struct Event {
  std::string type;  ///< Normal, Warning
  std::string reason, message;
};
/// One event per condition whose status or reason changed, if the list says that it is told.
std::vector<Event> events_of(const Conditions& before, const Conditions& after);

}  // namespace dsj::op
