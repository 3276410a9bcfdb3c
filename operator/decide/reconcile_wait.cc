// Waiting for a gang: pods that a queue holds, and workers with nodes that wait for workers
// without.
#include <algorithm>

#include "common/json.h"
#include "operator/decide/fetching.h"
#include "operator/decide/pass.h"
#include "operator/observe/pace.h"

namespace dsj::op {
/// True if every pod has a scheduling gate: a queue has not admitted the gang yet.
bool Pass::held() const {
  const auto pods = live();
  return !pods.empty() && std::ranges::all_of(pods, &PodView::gated);
}

/// Limits how long workers hold nodes while others do not run. Returns false if no pod may be
/// created now because a released gang is still being deleted.
bool Pass::wait_for_gang() {
  const Condition* restarting = find_condition(st_.conditions, "Restarting");
  const bool released =
      restarting && restarting->status == "True" && restarting->reason == kGangReleased;
  if (released && !attempt_open()) {  // otherwise the gang became complete after all
    // Pods created since then have a higher restart number.
    bool leaving = false;
    for (const PodView* pod : live()) {
      if (pod->restarts >= st_.restarts.total) continue;
      remove(*pod);
      leaving = true;
    }
    if (leaving) {
      creating_ = true;
      return false;
    }
  }
  if (const std::string problem = key_problem(); !problem.empty()) {
    release(problem, false);
    return false;
  }
  const bool holds = std::ranges::any_of(
      live(), [](const PodView* pod) { return !pod->node.empty() && !pod->deleting_from; });
  // A pod that fetches makes progress, which a move to another node would lose.
  const bool fetches =
      std::ranges::any_of(live(), [](const PodView* pod) { return is_fetching(*pod); });
  if (all_run() || attempt_open() || !holds || fetches) {
    st_.incomplete.reset();
    return true;
  }
  if (!st_.incomplete) st_.incomplete = shown_now();
  const Time end = *st_.incomplete + Seconds(spec().policies.run.recovery_deadline_seconds);
  if (now_ < end) {
    due(end);
    return true;
  }
  release(who_is_missing(), true);
  return false;
}

/// Deletes all pods; the gang is tried again after a pause, a long one if others are to use the
/// nodes. No failure caused this, so it is not charged. The status is written before pods are deleted: the
/// reason of Restarting and the number of restarts tell which pods to delete.
void Pass::release(const std::string& why, bool for_others) {
  int released = 0;  // in a row
  for (auto at = st_.failure_history.rbegin(); at != st_.failure_history.rend(); ++at) {
    if (json_text(*at, "reason") != kGangReleased) break;
    ++released;
  }
  const Seconds pause = for_others ? pause_after(released) : pause_uncharged(released);
  const std::string text = why + "; all pods are released, and the gang is tried again in " +
                           std::to_string(pause.count()) + " s";
  note_failure({.reason = kGangReleased, .message = text});
  ++st_.restarts.total;
  st_.restarts.last = shown_now();
  st_.restarts.not_before = std::max(st_.restarts.not_before.value_or(Time{}), now_ + pause);
  st_.incomplete.reset();
  if (for_others && st_.elastic) start_large(force_->sizes, wanted_, *st_.elastic);
  set("Restarting", true, kGangReleased, text);
  for (const PodView* pod : live()) remove(*pod);
  creating_ = true;
}

/// The number of workers whose pods do not run, and a description of the first of them.
std::pair<int, std::string> Pass::missing_workers() const {
  std::string first;
  int count = 0;
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    if (pod && pod->phase == PodView::Phase::Running && !pod->deleting_from) continue;
    if (pod && is_done(*pod)) continue;
    if (++count > 1) continue;
    first = "worker " + std::to_string(slot.worker);
    if (!pod) {
      first += o_.refusal ? " has no pod: " + o_.refusal->message : " has no pod";
    } else if (!pod->unscheduled.empty() && !pod->scheduled) {
      first += " has no node: " + pod->unscheduled;
    } else if (is_fetching(*pod)) {
      first += " fetches " + pod->waiting_message;
    } else if (!pod->waiting_reason.empty()) {
      first += " cannot start: " + pod->waiting_reason + ": " + pod->waiting_message;
    } else {
      first += " does not run";
    }
  }
  return {count, first};
}

std::string Pass::who_is_missing() const {
  const auto [count, first] = missing_workers();
  return std::to_string(count) + " of " + std::to_string(slots_.size()) +
         " workers did not join within " +
         std::to_string(spec().policies.run.recovery_deadline_seconds) + " s: " + first;
}

}  // namespace dsj::op
