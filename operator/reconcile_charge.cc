// Attempts that ended, in their pods or with them: who is to blame, whether it is charged, and whether
// another attempt may follow.
#include <algorithm>

#include "job/attempt_charge.h"
#include "job/contract.h"
#include "job/node_health.h"
#include "job/report/status.h"
#include "operator/fetching.h"
#include "operator/pass.h"

namespace dsj::op {
namespace {

using jobspec::FailureAction;

bool matches(const jobspec::FailureRule& rule, const Failure& failure) {
  if (!rule.exit_codes.empty()) {
    if (!failure.exit_code || *failure.exit_code == 0) return false;
    const bool in = std::ranges::count(rule.exit_codes, *failure.exit_code) > 0;
    if (in == rule.exit_codes_not_in) return false;
  }
  if (!rule.reasons.empty() && std::ranges::count(rule.reasons, failure.reason) == 0) return false;
  if (rule.pod_conditions.empty()) return true;
  return failure.pod && std::ranges::any_of(rule.pod_conditions, [&](const std::string& type) {
           return std::ranges::count(failure.pod->conditions, type) > 0;
         });
}

/// How likely the failure is a cause and not a consequence.
int weight(const Failure& failure) {
  if (failure.exit_code == contract::kExitPeerLost) return 0;
  if (failure.reason == contract::kReasonPreempted) return 1;
  return 2;
}

/// A pod may fetch for longer than the others wait, and so be older than the last restart. Its name says
/// whether its end was heard.
bool is_new_fetch(const Failure& failure, const Json& history) {
  return failure.reason == kInitializerFailed &&
         std::ranges::none_of(
             history, [&](const Json& one) { return one.value("pod", "") == failure.pod_name; });
}

}  // namespace

/// Its agent gave up waiting for a gang in which another worker's pod does not run.
bool Pass::waited_in_vain(const Failure& failure) const {
  return weight(failure) == 0 && std::ranges::any_of(slots_, [](const Slot& slot) {
           return !slot.newest || slot.newest->phase == PodView::Phase::Pending;
         });
}

FailureAction Pass::action_of(const Failure& failure, bool& by_rule) const {
  by_rule = false;
  for (const auto& rule : spec().policies.failure.rules) {
    if (!matches(rule, failure)) continue;
    by_rule = true;
    return rule.action;
  }
  if (failure.reason == contract::kReasonPreempted || failure.reason == "NodeLost" ||
      failure.reason == "PodDeleted" || failure.reason == contract::kReasonUnhealthyNode ||
      (failure.reason == kInitializerFailed && failure.pod->deleting_from) ||
      (failure.pod && is_disruption(*failure.pod))) {
    return FailureAction::RestartUncounted;
  }
  if (!failure.pod || !failure.pod->termination) return FailureAction::Restart;
  const int code = failure.pod->termination->exit_code;
  const bool fatal =
      contract::ends_the_job(code) || failure.reason == contract::kReasonBackoffLimitExceeded;
  return fatal ? FailureAction::FailJob : FailureAction::Restart;
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

/// Charges `ends` attempts that ended one after the other. The cause of the last is known, and it is charged. The others
/// began and ended between two writes of the status, so nobody told why. They count as the last does: agent 0 charged them,
/// and it takes this account for its own.
RestartVerdict Pass::charge_ends(int64_t ends) {
  Restarts& restarts = st_.restarts;
  RestartVerdict verdict;
  do {
    verdict = charge_restart({.limit = static_cast<int>(restarts.limit),
                              .used = static_cast<int>(restarts.counted),
                              .total = static_cast<int>(restarts.total),
                              .saved_step = restarts.saved_step},
                             job().agent.saved_step.value_or(-1));
    restarts.counted = verdict.budget.used;
    restarts.saved_step = verdict.budget.saved_step;
  } while (verdict.allowed && --ends > 0);
  return verdict;
}

void Pass::no_restart_left(const Failure& cause) {
  fail(contract::kReasonBackoffLimitExceeded, "no restart is left (backoffLimit " +
                                                  std::to_string(st_.restarts.limit) +
                                                  "): " + cause.message);
}

/// Charges one ended attempt once, whoever tells its end first. `failures` are new if one belongs
/// to an attempt that is not accounted for, or to a pod made since the last restart.
void Pass::charge(std::vector<Failure> failures, bool may_fail_by_rule) {
  Restarts& restarts = st_.restarts;
  const int64_t open = job().agent.attempt;
  const bool fresh = std::ranges::any_of(failures, [&](const Failure& failure) {
    const int64_t attempt = failure.attempt.value_or(attempt_open() ? open : 0);
    return attempt > restarts.attempt.value_or(0) ||
           (failure.pod && failure.pod->restarts == restarts.total) ||
           is_new_fetch(failure, st_.failure_history);
  });
  std::ranges::stable_sort(failures, std::less<>(), weight);
  bool fatal_by_rule = false, fatal = false, counted = false;
  const Failure* last_straw = &failures.back();
  for (const Failure& failure : failures) {
    bool by_rule = false;
    const FailureAction action = action_of(failure, by_rule);
    if (action == FailureAction::FailJob && !fatal) last_straw = &failure;
    fatal |= action == FailureAction::FailJob;
    fatal_by_rule |= action == FailureAction::FailJob && by_rule;
    // What the causes are decides; their victims follow them. Those who only waited for a worker
    // that has no place are victims too.
    const bool victim = weight(failure) < weight(failures.back()) || waited_in_vain(failure);
    counted |= action == FailureAction::Restart && (by_rule || !victim);
  }
  if (!fresh && !(fatal && may_fail_by_rule)) return;
  int64_t missed = 0;  // attempts that started and ended without the operator seeing it
  for (const Failure& failure : failures) {
    if (weight(failure) == weight(failures.back())) note_failure(failure);
    if (!failure.attempt) continue;
    const int64_t known = restarts.attempt.value_or(*failure.attempt);
    missed += std::max<int64_t>(0, *failure.attempt - 1 - known);
    restarts.attempt = std::max(known, *failure.attempt);
  }
  if (open > 0) restarts.attempt = std::max(restarts.attempt.value_or(0), open);
  const Failure& cause = failures.back();
  if (fatal) {
    return fail(fatal_by_rule ? "FailurePolicy" : last_straw->reason, last_straw->message);
  }
  restarts.total += 1 + missed;
  restarts.last = shown_now();
  set("Restarting", true, cause.reason, cause.message);
  const Seconds pause = node_pause(failures);
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

/// An attempt in these pods was followed by another: agent 0 has charged it by the same function.
void Pass::ended_in_place() {
  Restarts& restarts = st_.restarts;
  const int64_t attempt = job().agent.attempt;
  if (attempt == 0) return;
  const auto told = report::failure_from_status(job().agent.last_failure);
  if (!restarts.attempt) {
    // Numbers go on from an earlier job's in the same output folder. A failure in the status is this job's.
    const int64_t failed = told ? told->attempt.value_or(attempt) : attempt;
    restarts.attempt = (failed > 0 ? std::min(failed, attempt) : attempt) - 1;
  }
  if (attempt <= *restarts.attempt + 1) return;
  Failure failure{.reason = contract::kReasonPreempted,
                  .message = "a pod was taken away in attempt " + std::to_string(attempt - 1)};
  failure.attempt = attempt - 1;
  AttemptEnd end = AttemptEnd::PodTaken;  // agent 0 tells of every failure
  if (told && told->attempt == attempt - 1) {
    end = attempt_end_of(told->worker.value_or(-1), told->rank.value_or(-1));
    const auto number = [](const std::optional<int64_t>& value) {
      return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
    };
    failure.reason = word_or(told->reason, "RankFailed");
    failure.message = told->message;
    failure.last_words = told->last_words.value_or("");
    failure.rank = number(told->rank);
    failure.exit_code = number(told->exit_code);
    failure.signal = number(told->signal);
    failure.worker = number(told->worker).value_or(-1);
    failure.step = told->step;
    failure.collective = told->collective;
    failure.missing_ranks = told->missing_ranks;
    for (const Slot& slot : slots_) {
      if (slot.worker != failure.worker || !slot.newest) continue;
      failure.pod_name = slot.newest->name;
      failure.node = slot.newest->node;
    }
  }
  const int64_t missed = attempt - 2 - *restarts.attempt;
  note_failure(failure);
  restarts.attempt = attempt - 1;
  restarts.total += 1 + missed;
  restarts.last = shown_now();
  bool by_rule = false;
  const FailureAction action = action_of(failure, by_rule);
  if (by_rule && action == FailureAction::FailJob) return fail("FailurePolicy", failure.message);
  if (by_rule && action == FailureAction::RestartUncounted) return;
  if (!by_rule && charger_of(end, true) == Charger::Nobody) return;
  if (!charge_ends(1 + missed).allowed) no_restart_left(failure);
}

}  // namespace dsj::op
