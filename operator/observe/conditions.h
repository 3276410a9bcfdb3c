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

/// One row per type, in display order: its reasons, and for each reason whether it is published as
/// a Warning event, as a Normal event, or not at all.
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

/// Sets a condition. `since` is kept while the status stays the same. Throws if the type or reason
/// is not in the list: that is a defect, and the controller abandons the pass (controller.h).
/// Reasons of Failed and Restarting may also come from an agent; Ready, Reconciling and Stalled
/// copy the reasons of other conditions (readiness.h).
void set_condition(Conditions& conditions, Condition wanted);
const Condition* find_condition(const Conditions& conditions, const std::string& type);
bool is_true(const Conditions& conditions, const std::string& type);

/// The reason of the condition that explains a phase, or empty if the phase needs no explanation.
/// First comes a refused spec while the previous one stays in force, then what the job waits for.
std::string reason_of(const std::string& phase, const Conditions& conditions);

/// See readiness.h. The reason OperatorError means that a pass over the job threw; the next pass
/// that does not throw clears it.
inline constexpr char kStalled[] = "Stalled";

nlohmann::json to_json(const Conditions& conditions);
/// Keeps the first condition of each listed type. Cuts long texts.
Conditions conditions_from_json(const nlohmann::json& list);

struct Event {
  std::string type;  ///< Normal, Warning
  std::string reason, message;
};
/// One event per condition whose status or reason changed, if the list publishes its reason.
std::vector<Event> events_of(const Conditions& before, const Conditions& after);

}  // namespace dsj::op
