// Ended attempts: which failure is the cause, whether it is charged, and whether another attempt
// may follow.
#include <algorithm>

#include "common/json.h"
#include "job/attempt_charge.h"
#include "job/contract.h"
#include "job/node_health.h"
#include "job/report/status.h"
#include "operator/decide/pass.h"
#include "operator/observe/pace.h"

namespace dsj::op {
namespace {

using jobspec::FailureAction;

bool matches(const jobspec::FailureRule& rule, const Failure& said,
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
           return json_text(one, "pod") == failure.said.pod_name;
         });
}

/// Its agent stopped waiting for a gang in which another worker's pod does not run.
bool Pass::waited_in_vain(const PodFailure& failure) const {
  return weight(failure) == 0 && std::ranges::any_of(slots_, [](const Slot& slot) {
           return !slot.newest || slot.newest->phase == PodView::Phase::Pending;
         });
}

/// The action of the first matching rule of failurePolicy; nullopt if no rule matches.
std::optional<FailureAction> Pass::rule_for(const Failure& said,
                                            const std::vector<std::string>& conditions) const {
  for (const auto& rule : spec().policies.failure.rules)
    if (matches(rule, said, conditions)) return rule.action;
  return std::nullopt;
}

void Pass::note_failure(const Failure& failure) {
  report::FailureRecord record{.time = to_text(shown_now()),
                               .reason = failure.reason,
                               .attempt = failure.attempt,
                               .step = failure.step,
                               .rank = failure.rank,
                               .signal = failure.signal,
                               .message = failure.message,
                               .collective = failure.collective,
                               .missing_ranks = failure.missing_ranks};
  if (!failure.pod_name.empty()) record.pod = failure.pod_name;
  if (!failure.node.empty()) record.node = failure.node;
  if (failure.worker >= 0) record.worker = failure.worker;
  if (!failure.signal) record.exit_code = failure.exit_code;
  if (!failure.last_words.empty()) record.last_words = failure.last_words;
  st_.last_failure = status_json(record);
  st_.failure_history.push_back(st_.last_failure);
  while (st_.failure_history.size() > kHistoryMax) {
    st_.failure_history.erase(st_.failure_history.begin());
  }
}

/// Charges `ends` consecutive ended attempts. Only the cause of the last one is known, and it is
/// charged. The others began and ended between two writes of the status. They are charged like the
/// last one: agent 0 charged them too, and it continues with this account.
RestartVerdict Pass::charge_ends(int64_t ends) {
  constexpr int64_t kBig = 1'000'000'000;
  Restarts& restarts = st_.restarts;
  const auto one_more = [&] {
    const auto verdict =
        charge_restart({.limit = static_cast<int>(std::min(restarts.limit, kBig)),
                        .used = static_cast<int>(std::clamp<int64_t>(restarts.counted, 0, kBig)),
                        .total = static_cast<int>(std::clamp<int64_t>(restarts.total, 0, kBig)),
                        .saved_step = restarts.saved_step},
                       job().agent.saved_step.value_or(-1));
    restarts.counted = verdict.budget.used;
    restarts.saved_step = verdict.budget.saved_step;
    return verdict;
  };
  const auto first = one_more();
  if (!first.allowed || ends <= 1) return first;
  // All but two at once, because the status may contain any number.
  restarts.counted = std::min(restarts.limit, restarts.counted + ends - 2);
  return one_more();
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

void Pass::no_restart_left(const Failure& cause) {
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
  const Failure* last_straw = &failures.back().said;
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
  int64_t missed = 0;  // attempts that started and ended unobserved
  for (const PodFailure& failure : failures) {
    if (weight(failure) == weight(failures.back())) note_failure(failure.said);
    if (!failure.said.attempt) continue;
    const int64_t attempt = *failure.said.attempt;
    const int64_t known = restarts.attempt.value_or(attempt);
    missed += std::max<int64_t>(0, attempt - 1 - known);
    restarts.attempt = std::max(known, attempt);
  }
  if (open > 0) restarts.attempt = std::max(restarts.attempt.value_or(0), open);
  const Failure& cause = failures.back().said;
  if (fatal) {
    return fail(fatal_by_rule ? "FailurePolicy" : last_straw->reason, last_straw->message);
  }
  restarts.total += 1 + missed;
  set("Restarting", true, cause.reason, cause.message);
  const Seconds pause = counted ? Seconds(0) : std::max(node_pause(failures), uncharged());
  restarts.last = shown_now();
  if (!counted) {
    restarts.not_before.reset();
    if (pause > Seconds(0)) restarts.not_before = now_ + pause;
    return;
  }
  const auto verdict = charge_ends(1 + missed);
  if (!verdict.allowed) {
    --restarts.total;
    return no_restart_left(cause);
  }
  restarts.not_before = now_ + verdict.pause;
}

/// What agent 0 reports about the end of `attempt`. It reports every failure; without a report a
/// pod was removed.
RankFailure Pass::failure_in_place(int64_t attempt) const {
  const auto& told = job().agent.last_failure;
  if (!told || told->attempt != attempt) {
    return {.said = {.reason = contract::kReasonPreempted,
                     .message = "a pod was taken away in attempt " + std::to_string(attempt),
                     .attempt = attempt}};
  }
  const auto number = [](const std::optional<int64_t>& value) {
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  RankFailure failed{.said = {.reason = told->reason,
                              .message = told->message,
                              .last_words = told->last_words.value_or(""),
                              .collective = told->collective,
                              .missing_ranks = told->missing_ranks,
                              .worker = number(told->worker).value_or(-1),
                              .rank = number(told->rank),
                              .exit_code = number(told->exit_code),
                              .signal = number(told->signal),
                              .attempt = attempt,
                              .step = told->step},
                     .end = attempt_end_of(told->worker.value_or(-1), told->rank.value_or(-1))};
  for (const Slot& slot : slots_) {
    if (slot.worker != failed.said.worker || !slot.newest) continue;
    failed.said.pod_name = slot.newest->name;
    failed.said.node = slot.newest->node;
  }
  return failed;
}

/// Another attempt followed in the same pods: agent 0 has charged the previous one with the same
/// function.
void Pass::ended_in_place() {
  Restarts& restarts = st_.restarts;
  const int64_t attempt = job().agent.attempt;
  if (attempt == 0) return;
  if (!restarts.attempt) {
    // Attempt numbers continue from an earlier job with the same output directory. A failure in the
    // status belongs to this job.
    const auto& told = job().agent.last_failure;
    const int64_t failed = told ? told->attempt.value_or(attempt) : attempt;
    restarts.attempt = (failed > 0 ? std::min(failed, attempt) : attempt) - 1;
  }
  if (attempt <= *restarts.attempt + 1) return;
  const RankFailure failure = failure_in_place(attempt - 1);
  const int64_t missed = attempt - 2 - *restarts.attempt;
  note_failure(failure.said);
  restarts.attempt = attempt - 1;
  restarts.total += 1 + missed;
  restarts.last = shown_now();
  const auto by_rule = rule_for(failure.said, {});
  if (by_rule == FailureAction::FailJob) return fail("FailurePolicy", failure.said.message);
  if (by_rule == FailureAction::RestartUncounted) return;
  if (!by_rule && charger_of(failure.end, true) == Charger::Nobody) return;
  if (!charge_ends(1 + missed).allowed) no_restart_left(failure.said);
}

}  // namespace dsj::op
