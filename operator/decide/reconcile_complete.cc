// Decides whether the job is complete, and which agents' reports count for which workers.
#include <algorithm>

#include "job/contract.h"
#include "operator/decide/pass.h"

namespace dsj::op {
namespace {

/// How long agents may take to end after the first of them reported Completed. Agent 0 tells them
/// within seconds, and it serves the result for a minute before it exits. A pod that runs longer
/// hangs, or was created for a worker whose ranks were already done.
constexpr Seconds kTimeToEnd{120};

}  // namespace

bool Pass::said_done(const PodView* pod) const {
  return pod && pod->revision == st_.revision && is_done(*pod);
}

/// Records the newest attempt that is done but not counted.
void Pass::hear_completion() {
  for (const Slot& slot : slots_) {
    if (!said_done(slot.newest)) continue;
    const int64_t attempt = slot.newest->termination->attempt.value_or(job().agent.attempt);
    const bool open = attempt > st_.restarts.attempt.value_or(0);
    if (open) st_.completed = std::max(st_.completed, attempt);
  }
  if (!attested()) {
    st_.completed_since.reset();
  } else if (!st_.completed_since) {
    st_.completed_since = shown_now();
  }
}

/// True if an agent reported Completed for an attempt that is not counted. Agents learn this from
/// agent 0, which says it only after every rank of every worker ended with exit code 0. So one
/// report also covers workers whose pods were collected or whose nodes are lost. If worker 0's pod
/// is gone, agent 0's last status report serves as well.
bool Pass::attested() const {
  const int64_t known = st_.restarts.attempt.value_or(0);
  if (st_.completed > known) return true;
  const bool zero_gone = !slots_.empty() && !slots_[0].newest;
  const bool of_this_spec = !new_revision_ && !st_.stop_since;
  if (!zero_gone || !of_this_spec || !attempt_open() || !job().agent.finished) return false;
  return std::ranges::count(job().agent.failures, job().agent.attempt,
                            &report::FailureRecord::attempt) == 0;
}

/// True if every worker reported Completed, or if one report covers the others. A pod that ended
/// differently is handled first.
bool Pass::complete() {
  if (slots_.empty()) return false;
  hear_completion();
  int collected = 0, running = 0;
  for (const Slot& slot : slots_) {
    if (said_done(slot.newest)) continue;
    if (!attested() || (slot.newest && slot.newest->ended())) return false;
    ++(slot.newest ? running : collected);
  }
  if (running > 0 && now_ < *st_.completed_since + kTimeToEnd) {
    due(*st_.completed_since + kTimeToEnd);
    return false;
  }
  std::string message = spec().runs_user_program()
                            ? "every rank ended with exit code 0"
                            : "every worker did the last step, saved and exported it";
  const std::string of_all = " of " + std::to_string(slots_.size()) + " pods ";
  if (collected > 0) message += "; " + std::to_string(collected) + of_all + "were gone by then";
  if (running > 0) message += "; " + std::to_string(running) + of_all + "had not ended by then";
  st_.completion = shown_now();
  set("Complete", true, contract::kReasonCompleted, message);
  return true;
}

}  // namespace dsj::op
