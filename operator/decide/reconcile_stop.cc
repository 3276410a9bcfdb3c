// Suspends a job, or stops it for a new spec. Status and spec ask agent 0 to stop; all ranks save
// the same step before the pods are deleted.
#include <algorithm>

#include "operator/decide/pass.h"

namespace dsj::op {
namespace {

/// How long the status may lag behind the agents' termination messages.
constexpr Seconds kReportLag{30};

}  // namespace

/// Counts the last attempt as ended without a failure.
void Pass::forget_attempt() {
  auto& known = st_.restarts.attempt;
  if (job().agent.attempt > 0) known = std::max(known.value_or(0), job().agent.attempt);
}

Pass::Drained Pass::drained() {
  if (!st_.stop_since) st_.stop_since = now_;
  const Time deadline = *st_.stop_since + Seconds(spec().policies.save_timeout_seconds);
  const AgentStatus& agent = job().agent;
  auto running = live();
  if (!suspend_) std::erase_if(running, [&](const PodView* pod) { return goes_on(*pod); });
  if (running.empty()) {
    std::optional<int64_t> step;
    for (const PodView* pod : pods_) {
      if (pod->termination && (is_preempted(*pod) || is_done(*pod)) && pod->termination->step) {
        step = std::max(step.value_or(-1), *pod->termination->step);
      }
    }
    const Time patience = std::min(deadline, *st_.stop_since + kReportLag);
    if (spec().runs_user_program() && !agent.saved_step) {
      return attempt_open() ? Drained::NotSaved : Drained::Saved;
    }
    if (!step) return attempt_open() && !agent.saved_step ? Drained::NotSaved : Drained::Saved;
    if (*step <= agent.saved_step.value_or(0) || now_ >= patience) return Drained::Saved;
    due(patience);
    return Drained::No;
  }
  if (!attempt_open()) return Drained::Saved;  // nothing ran since the last save
  if (agent.stop_step && agent.saved_step && *agent.saved_step >= *agent.stop_step) {
    return Drained::Saved;
  }
  if (now_ >= deadline) {
    // Agent 0 could not report, for example because its account was deleted. Another agent knows.
    const bool saved = std::ranges::any_of(pods_, [&](const PodView* pod) {
      return is_preempted(*pod) && pod->termination->step &&
             pod->termination->attempt.value_or(0) == agent.attempt;
    });
    return saved ? Drained::Saved : Drained::NotSaved;
  }
  due(deadline);
  return Drained::No;
}

void Pass::suspend() {
  const Condition* before = find_condition(st_.conditions, "Suspended");
  const std::string reason = before ? before->reason : "";
  if (pods_.empty()) {
    const bool lost = reason == "NotSaved" || reason == "SuspendedWithoutCheckpoint";
    forget_attempt();
    st_.stop_since.reset();
    st_.start.reset();
    st_.incomplete.reset();
    st_.restarts.not_before.reset();
    tidy_gangs({});
    if (st_.elastic) start_large(force_->sizes, wanted_, *st_.elastic);
    const auto saved = job().agent.saved_step;
    set("Suspended", true, lost ? "SuspendedWithoutCheckpoint" : "Suspended",
        lost && spec().runs_user_program()
            ? "the program was asked to end; what it saved is not known here"
        : lost  ? "the ranks had not saved when the time for it was over"
        : saved ? "step " + std::to_string(*saved) + " is saved"
                : "no step was done");
    return;
  }
  for (const PodView* pod : live()) {
    if (is_spare(*pod)) remove(*pod);
  }
  if (reason != "Saved" && reason != "NotSaved") {
    const Drained state = drained();
    if (state == Drained::No) {
      make_children(true);  // without them agent 0 cannot report that the step is saved
      set("Suspended", false, "Suspending", "all ranks save one step, then the pods are deleted");
      return;
    }
    const bool saved = state == Drained::Saved;
    set("Suspended", false, saved ? "Saved" : "NotSaved",
        saved                        ? "the pods are deleted"
        : spec().runs_user_program() ? "the program was asked to end; its pods are deleted"
                                     : "the ranks did not save in time; the pods are deleted");
  }
  for (const PodView* pod : pods_) {
    if (!is_spare(*pod)) remove(*pod);
  }
  lost_pods();
}

void Pass::roll() {
  st_.incomplete.reset();
  const Drained state = drained();
  const bool resized = st_.elastic && std::ranges::all_of(live(), [&](const PodView* pod) {
                         return base_revision(pod->revision) == base_revision(st_.revision);
                       });
  const Condition* before = find_condition(st_.conditions, "Restarting");
  if (before && before->status == "True" && before->reason == kGangReleased) {
    // Keep the reason why the gang was released.
  } else if (resized) {
    set("Restarting", true, "Resized", st_.elastic->message);
  } else {
    set("Restarting", true, "SpecChanged",
        "revision " + st_.revision + " starts when all ranks have saved one step");
  }
  if (state == Drained::No) return make_children(true);
  for (const PodView* pod : pods_) {
    if (!goes_on(*pod)) remove(*pod);
  }
  lost_pods();
}

}  // namespace dsj::op
