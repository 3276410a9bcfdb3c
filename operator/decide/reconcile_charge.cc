// Ended attempts: which failure is the cause, whether it is charged, and whether another attempt
// may follow.
#include <algorithm>

#include "common/json.h"
#include "job/contract.h"
#include "job/node_health.h"
#include "job/report/status.h"
#include "operator/decide/pass.h"
#include "operator/observe/pace.h"

namespace dsj::op {
namespace {

using jobspec::FailureAction;

bool matches(const jobspec::FailureRule& rule, const report::FailureRecord& said,
             const std::vector<std::string>& conditions) {
  if (!rule.exit_codes.empty()) {
    if (!said.exit_code || *said.exit_code == 0) return false;
    const bool in = std::ranges::count(rule.exit_codes, *said.exit_code) > 0;
    if (in == rule.exit_codes_not_in) return false;
  }
  if (!rule.reasons.empty() && std::ranges::count(rule.reasons, said.reason) == 0) return false;
  return rule.pod_conditions.empty() ||
         std::ranges::any_of(rule.pod_conditions, [&](const std::string& type) {
           return std::ranges::count(conditions, type) > 0;
         });
}

/// The failure with the highest weight is the cause; the others are consequences.
int weight(const PodFailure& failure) {
  if (failure.gave_up) return 0;
  return failure.end == PodEnd::Preempted ? 1 : 2;
}

FailureAction action_without_rule(const PodFailure& failure) {
  switch (failure.end) {
    case PodEnd::Preempted:
    case PodEnd::TakenAway:
      return FailureAction::RestartUncounted;
    case PodEnd::Fatal:
      return FailureAction::FailJob;
    case PodEnd::Failed:
      break;
  }
  return FailureAction::Restart;
}

}  // namespace

/// True if an initializer's failure has not been counted yet. A pod may fetch longer than the
/// others wait, and so be older than the last restart; the history shows by its name whether it was
/// counted.
bool Pass::is_new_fetch(const PodFailure& failure) const {
  return failure.fetched && std::ranges::none_of(st_.failure_history, [&](const Json& one) {
           return json_text(one, "pod") == failure.said.pod;
         });
}

/// Its agent stopped waiting for a gang in which another worker's pod does not run.
bool Pass::waited_in_vain(const PodFailure& failure) const {
  return weight(failure) == 0 && std::ranges::any_of(slots_, [](const Slot& slot) {
           return !slot.newest || slot.newest->phase == PodView::Phase::Pending;
         });
}

/// The action of the first matching rule of failurePolicy; nullopt if no rule matches.
std::optional<FailureAction> Pass::rule_for(const report::FailureRecord& said,
                                            const std::vector<std::string>& conditions) const {
  for (const auto& rule : spec().policies.failure.rules)
    if (matches(rule, said, conditions)) return rule.action;
  return std::nullopt;
}

void Pass::note_failure(report::FailureRecord failure) {
  failure.time = to_text(shown_now());
  if (failure.signal) failure.exit_code.reset();
  if (failure.node == "") failure.node.reset();
  st_.last_failure = status_json(failure);
  st_.failure_history.push_back(st_.last_failure);
  while (st_.failure_history.size() > kHistoryMax) {
    st_.failure_history.erase(st_.failure_history.begin());
  }
}

RestartVerdict Pass::charge_one(int64_t newest_checkpoint) {
  constexpr int64_t kBig = 1'000'000'000;
  Restarts& restarts = st_.restarts;
  const auto verdict =
      charge_restart({.limit = static_cast<int>(std::min(restarts.limit, kBig)),
                      .used = static_cast<int>(std::clamp<int64_t>(restarts.counted, 0, kBig)),
                      .saved_step = restarts.saved_step},
                     newest_checkpoint);
  restarts.counted = verdict.budget.used;
  restarts.saved_step = verdict.budget.saved_step;
  return verdict;
}

/// Counts the ends up to this attempt. A restart followed each of the others, too.
void Pass::count_ends(int64_t attempt) {
  auto& known = st_.restarts.attempt;
  st_.restarts.total += std::max<int64_t>(0, attempt - 1 - known.value_or(attempt));
  known = std::max(known.value_or(attempt), attempt);
}

void Pass::restarted() {
  ++st_.restarts.total;
  st_.restarts.last = shown_now();
}

/// Counts a restart that is not charged. Returns the pause before it.
Seconds Pass::uncharged() {
  Restarts& restarts = st_.restarts;
  const int64_t saved = job().agent.saved_step.value_or(-1);
  if (saved > restarts.saved_step) {  // a newer checkpoint restores the whole budget
    restarts.saved_step = saved;
    restarts.counted = restarts.uncounted = 0;
  }
  if (restarts.last && now_ >= *restarts.last + kRowOver) restarts.uncounted = 0;
  return pause_uncharged(restarts.uncounted++);
}

void Pass::no_restart_left(const report::FailureRecord& cause) {
  fail(contract::kReasonBackoffLimitExceeded, "no restarts are left (backoffLimit " +
                                                  std::to_string(st_.restarts.limit) +
                                                  "): " + cause.message);
}

/// Charges one ended attempt once, no matter who reports its end first. The failures are new if one
/// belongs to an attempt that was not counted yet, or to a pod created since the last restart.
void Pass::charge(std::vector<PodFailure> failures, bool may_fail_by_rule) {
  Restarts& restarts = st_.restarts;
  const int64_t open = job().agent.attempt;
  const bool fresh = std::ranges::any_of(failures, [&](const PodFailure& failure) {
    const int64_t attempt = failure.said.attempt.value_or(attempt_open() ? open : 0);
    return attempt > restarts.attempt.value_or(0) || failure.restarts_before == restarts.total ||
           is_new_fetch(failure);
  });
  std::ranges::stable_sort(failures, std::less<>(), weight);
  bool fatal_by_rule = false, fatal = false, counted = false;
  const report::FailureRecord* last_straw = &failures.back().said;
  for (const PodFailure& failure : failures) {
    const auto by_rule = rule_for(failure.said, failure.conditions);
    const FailureAction action = by_rule.value_or(action_without_rule(failure));
    if (action == FailureAction::FailJob && !fatal) last_straw = &failure.said;
    fatal |= action == FailureAction::FailJob;
    fatal_by_rule |= by_rule == FailureAction::FailJob;
    // The causes decide; consequences do not count. Agents that only waited for a worker without a
    // node are consequences too.
    const bool victim = weight(failure) < weight(failures.back()) || waited_in_vain(failure);
    counted |= action == FailureAction::Restart && (by_rule || !victim);
  }
  if (!fresh && !(fatal && may_fail_by_rule)) return;
  for (const PodFailure& failure : failures) {
    if (weight(failure) == weight(failures.back())) note_failure(failure.said);
    if (failure.said.attempt > 0) count_ends(*failure.said.attempt);
  }
  if (open > 0) count_ends(open);
  const report::FailureRecord& cause = failures.back().said;
  if (fatal) {
    return fail(fatal_by_rule ? "FailurePolicy" : last_straw->reason, last_straw->message);
  }
  set("Restarting", true, cause.reason, cause.message);
  if (!counted) {
    const Seconds pause = std::max(node_pause(failures), uncharged());
    restarts.not_before.reset();
    if (pause > Seconds(0)) restarts.not_before = now_ + pause;
    return restarted();
  }
  const auto verdict = charge_one(job().agent.saved_step.value_or(-1));
  if (!verdict.allowed) return no_restart_left(cause);
  restarts.not_before = now_ + verdict.pause;
  restarted();
}

/// Charges a failure that agent 0 recorded, and after which another attempt followed. The loss of a
/// worker is not charged if its pod was replaced since: that pod's end was judged then.
void Pass::failed_in_place(report::FailureRecord failure) {
  const auto time = time_from_text(failure.time);
  bool replaced = false;
  failure.pod.reset();
  failure.node.reset();
  for (const Slot& slot : slots_) {
    if (slot.worker != failure.worker || !slot.newest) continue;
    replaced = time && slot.newest->created >= time;
    if (replaced) continue;
    failure.pod = slot.newest->name;
    failure.node = slot.newest->node;
  }
  note_failure(failure);
  count_ends(*failure.attempt);
  restarted();
  const bool judged = replaced && !failure.rank;
  const FailureAction action =
      rule_for(failure, {})
          .value_or(judged ? FailureAction::RestartUncounted : FailureAction::Restart);
  if (action == FailureAction::FailJob) return fail("FailurePolicy", failure.message);
  if (action == FailureAction::RestartUncounted) return;
  const int64_t saved = job().agent.saved_step.value_or(-1);
  if (!charge_one(failure.saved_step.value_or(saved)).allowed) no_restart_left(failure);
}

/// Another attempt followed in the same pods. Agent 0 records every failure that is not counted
/// yet; an attempt without a record ended because a pod was taken away.
void Pass::ended_in_place() {
  auto& known = st_.restarts.attempt;
  const int64_t attempt = job().agent.attempt;
  if (attempt == 0) return;
  const auto& failures = job().agent.failures;
  if (!known) {
    // Attempt numbers continue from an earlier job with the same output directory. The failures in
    // the status belong to this job.
    known = attempt - 1;
    for (const auto& failure : failures) {
      if (failure.attempt > 0) known = std::min(*known, *failure.attempt - 1);
    }
  }
  for (const auto& failure : failures) {
    if (failure.attempt <= known || failure.attempt >= attempt) continue;
    failed_in_place(failure);
    if (ended()) return;
  }
  if (attempt <= *known + 1) return;
  note_failure({.reason = contract::kReasonPreempted,
                .attempt = attempt - 1,
                .message = "a pod was taken away in attempt " + std::to_string(attempt - 1)});
  count_ends(attempt - 1);
  restarted();
}

}  // namespace dsj::op
