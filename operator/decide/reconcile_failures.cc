// Pods that failed, are gone, or were lost with their nodes: what is known about each.
#include <algorithm>

#include "job/contract.h"
#include "job/failure_reasons.h"
#include "operator/decide/pass.h"
#include "operator/observe/fetch_status.h"

namespace dsj::op {

std::string word_or(const std::string& reason, const std::string& otherwise) {
  const auto is = [](int (*kind)(int), char c) { return kind(static_cast<unsigned char>(c)) != 0; };
  if (reason.empty() || reason.size() > kReasonBytesMax || !is(std::isalpha, reason.front()) ||
      !is(std::isalnum, reason.back())) {
    return otherwise;
  }
  std::string word = reason;  // "OutOfnvidia.com/gpu"
  for (char& c : word)
    if (!is(std::isalnum, c)) c = '_';
  return word;
}

PodFailure Pass::failure_of(const PodView& pod) const {
  PodFailure failed{.said = {.pod = pod.name, .node = pod.node, .worker = pod.worker},
                    .conditions = pod.conditions,
                    .restarts_before = pod.restarts};
  report::FailureRecord& failure = failed.said;
  if (is_disruption(pod) || is_rejected(pod) || ended_unseen(pod)) failed.end = PodEnd::TakenAway;
  if (!pod.termination) {
    failure.reason = word_or(pod.reason, "PodFailed");
    failure.message =
        pod.message.empty() ? "the pod ended without a last report of its agent" : pod.message;
    return failed;
  }
  const Termination& end = *pod.termination;
  const bool agent_spoke = end.attempt.has_value();
  failed.fetched = end.reason == kInitializerFailed;
  failure.exit_code = end.rank_exit_code ? *end.rank_exit_code : end.exit_code;
  failure.signal = end.rank_signal;
  failure.rank = end.rank;
  failure.attempt = end.attempt;
  failure.step = end.step;
  if (!end.last_words.empty()) failure.last_words = end.last_words;
  failure.message = end.message;
  failure.reason = word_or(end.reason, "PodFailed");
  if (is_preempted(pod)) failure.reason = contract::kReasonPreempted;
  // The platform's reason for the pod is more informative than the exit code of the killed agent.
  const bool evicted = is_disruption(pod) || pod.reason == "Evicted";
  if (!agent_spoke && evicted) failure.reason = word_or(pod.reason, "Evicted");
  if (failure.message.empty()) {
    failure.message = "exit code " + std::to_string(end.exit_code);
    if (!pod.message.empty()) failure.message += ": " + pod.message;
  }
  failed.gave_up = failure.exit_code == contract::kExitPeerLost;
  if (is_preempted(pod)) {
    failed.end = PodEnd::Preempted;
  } else if (found_unfit(pod) || lacked_key(pod) || (failed.fetched && pod.deleting_from)) {
    failed.end = PodEnd::TakenAway;
  } else if (failed.end == PodEnd::Failed &&
             (contract::ends_the_job(end.exit_code) ||
              end.reason == contract::kReasonBackoffLimitExceeded)) {
    failed.end = PodEnd::Fatal;
  }
  return failed;
}

/// When the running attempt last reported a step. A step takes every rank, so it is stronger
/// evidence than node conditions: after an outage of the control plane, nodes count as not ready
/// for a minute while the gang trains.
Time Pass::heard() const {
  constexpr Seconds kSkew{30};  // how far another node's clock may be ahead
  if (!o_.job || !attempt_open()) return Time{};
  const auto& updated = job().agent.updated;
  if (!updated || *updated > now_ + kSkew) return Time{};
  return std::min(*updated, now_);
}

/// Gives up pods on nodes that are not ready, and pods whose deletion does not finish. Waits until
/// their agents must have ended their ranks.
void Pass::lost_pods() {
  const auto policy = force_ ? spec().policies.failure : jobspec::FailurePolicy{};
  const Seconds patience(policy.force_delete_after_seconds);
  const bool spoken_for = attested();
  for (const PodView* pod : pods_) {
    std::optional<Time> since = pod->deleting_from;
    if (pod->ended() && !since) continue;
    const auto node = o_.nodes.find(pod->node);
    if (node != o_.nodes.end() && !node->second.ready) {
      const Time away = std::max({node->second.since, pod->created.value_or(Time{}), heard()});
      if (now_ < away + Seconds(policy.node_grace_seconds)) {
        due(away + Seconds(policy.node_grace_seconds));
      } else if (!since || away < *since) {
        since = away;
      }
    }
    if (!since) continue;
    if (now_ < *since + patience) {
      due(*since + patience);
      continue;
    }
    remove(*pod, true);
    if (pod->ended() || !force_ || suspend_ || st_.stop_since || ended()) continue;
    if (is_spare(*pod)) continue;  // no ranks are lost with it
    if (spoken_for) continue;      // its ranks had ended, and the pod counts as gone
    charge({{.said = {.reason = "NodeLost",
                      .pod = pod->name,
                      .node = pod->node,
                      .worker = pod->worker,
                      .message = "node " + pod->node + " does not answer; its pod was given up"},
             .end = PodEnd::TakenAway,
             .conditions = pod->conditions,
             .restarts_before = pod->restarts}},
           false);
  }
}

void Pass::failures() {
  std::vector<PodFailure> found;
  const bool open = attempt_open();
  const bool spoken_for = attested();
  const bool gone = std::ranges::any_of(slots_, [](const Slot& slot) { return !slot.newest; });
  for (const Slot& slot : slots_) {
    if (!slot.newest) {
      if (!open || spoken_for) continue;
      found.push_back(
          {.said = {.reason = "PodDeleted",
                    .worker = slot.worker,
                    .message = "the pod of worker " + std::to_string(slot.worker) + " is gone"},
           .end = PodEnd::TakenAway});
    } else if (slot.newest->ended() && slot.newest->revision == st_.revision &&
               !is_done(*slot.newest)) {
      found.push_back(failure_of(*slot.newest));
    }
  }
  if (found.empty()) return;
  charge(std::move(found), true);
  // An attempt was reported, so its pods existed. If the operator was down, they may have had the
  // recorded number or the next one. Done once, when the attempt is counted.
  if (open && gone && !attempt_open()) ++st_.incarnation;
}

}  // namespace dsj::op
