#include "operator/decide/reconcile.h"

#include <algorithm>

#include "common/json.h"
#include "job/contract.h"
#include "job/failure_reasons.h"
#include "job/spec/cluster_spec.h"
#include "operator/decide/pass.h"
#include "operator/decide/readiness.h"
#include "operator/render/render_config.h"

namespace dsj::op {

Pass::Pass(const Observed& observed, Time now) : o_(observed), now_(now) {
  if (o_.job) st_ = own_status_from_json(job().own_status);
  for (const PodView& pod : o_.pods) {
    if (!o_.job || pod.owner_uid == job().uid) pods_.push_back(&pod);
  }
  believe_pods();
}

/// Takes the highest pod number from the pods if the status is too low to be true. While the gang
/// is incomplete, a worker has at most two pods that the status does not know: one kept for its
/// logs and its successor. A larger gap means that someone else wrote the number.
void Pass::believe_pods() {
  int64_t highest = 0;
  for (const PodView* pod : pods_) highest = std::max(highest, pod->incarnation);
  if (highest > st_.incarnation + 2) st_.incarnation = highest;
}

void Pass::set(const char* type, bool yes, const std::string& reason, const std::string& message) {
  set_condition(st_.conditions, {.type = type,
                                 .status = yes ? "True" : "False",
                                 .reason = reason,
                                 .message = message,
                                 .observed_generation = job().generation,
                                 .since = shown_now()});
}

void Pass::set_unknown(const char* type, const std::string& reason, const std::string& message) {
  set_condition(st_.conditions, {.type = type,
                                 .status = "Unknown",
                                 .reason = reason,
                                 .message = message,
                                 .observed_generation = job().generation,
                                 .since = shown_now()});
}

void Pass::due(Time time) {
  if (!plan_.again || time < *plan_.again) plan_.again = time;
}

void Pass::remove(const PodView& pod, bool force) {
  if (pod.deleting_from && !force) return;
  // The pod's own grace period is for saving, and the container that saves has ended.
  constexpr int64_t kSidecarGrace = 30;
  plan_.deletes.push_back(
      {.kind = "Pod",
       .name = pod.name,
       .uid = pod.uid,
       .force = force,
       .grace_seconds = pod.lingers ? std::optional(kSidecarGrace) : std::nullopt});
}

bool Pass::ended() const {
  return is_true(st_.conditions, "Complete") || is_true(st_.conditions, "Failed");
}

bool Pass::attempt_open() const {
  const int64_t attempt = job().agent.attempt;
  return attempt > 0 && attempt > st_.restarts.attempt.value_or(attempt - 1);
}

bool Pass::has_trained() const {
  return job().agent.attempt > 0 || st_.restarts.attempt.value_or(0) > 0;
}

bool Pass::all_run() const {
  const bool spoken_for = attested();
  return !slots_.empty() && std::ranges::all_of(slots_, [&](const Slot& slot) {
    if (!slot.newest) return spoken_for;
    const bool runs = slot.newest->phase == PodView::Phase::Running && !slot.newest->deleting_from;
    return runs || is_done(*slot.newest);  // its part of the attempt is done
  });
}

std::vector<const PodView*> Pass::live() const {
  std::vector<const PodView*> found;
  for (const PodView* pod : pods_) {
    if (!pod->ended()) found.push_back(pod);
  }
  return found;
}

/// Decides which spec is in force: the current one or, if that is refused, the last accepted one.
/// Returns false if there is none.
bool Pass::accept() {
  const bool edited =
      st_.observed_generation != job().generation || !is_true(st_.conditions, "Accepted");
  st_.observed_generation = job().generation;
  force_ = o_.wanted.accepted ? o_.wanted.accepted : o_.in_force;
  const bool yes = o_.wanted.accepted != nullptr;
  std::string message = o_.wanted.message;
  if (!yes && force_) message = "the previous spec stays in force: " + message;
  set("Accepted", yes, o_.wanted.reason, message);
  if (!force_) return false;
  const auto& policies = spec().policies;
  // A refused edit must not prevent a suspension.
  const auto asked = job().spec.find("suspend");
  suspend_ = asked != job().spec.end() && asked->is_boolean() ? asked->get<bool>()
                                                              : policies.suspend && yes;
  const std::string kept = revision(edited), before = st_.revision;
  enter_elastic();
  take_size(kept);
  new_revision_ = st_.revision != before;
  if (new_revision_) st_.completed = 0;
  note_template();
  st_.zero_stage = force_->zero_stage;
  st_.save_timeout_seconds = policies.save_timeout_seconds;
  st_.step_timeout_seconds = policies.step_timeout_seconds;
  st_.selector = std::string(contract::kLabelJobName) + "=" + o_.name;
  st_.restarts.limit = spec().restart_policy == "Never" ? 0 : spec().backoff_limit;
  return true;
}

/// Records the template. A newer generation that leaves the pods unchanged is not recorded.
void Pass::note_template() {
  const auto& source = force_->worker_template;
  const std::string name = source ? source->name : "";
  if (!new_revision_ && name == st_.template_name) return;
  st_.template_name = name;
  st_.template_generation = source ? source->generation : 0;
}

/// The revision of the spec in force, without an elastic job's size. An API server adds defaults of
/// a newer CRD to a spec that nobody edited: that changes the spec's hash but must not change its
/// revision.
std::string Pass::revision(bool edited) {
  const std::string before = base_revision(st_.revision);
  if (!o_.wanted.accepted) return before.empty() ? force_->revision : before;
  const std::string& hash = force_->revision;
  const std::string known = st_.spec_hash.empty() ? before : st_.spec_hash;
  if (hash == known) return before;
  if (!before.empty() && !edited) {
    st_.spec_hash = hash;
    return before;
  }
  st_.spec_hash.clear();
  return hash;
}

/// Sets the time from which deadlines count: the first pass, the first pass after a suspension, or
/// the moment when a queue admits the pods.
void Pass::start_anew() {
  if (held()) return st_.start.reset();
  if (!st_.start) st_.start = shown_now();
}

void Pass::unfinished() {
  group_pods();
  if (complete()) return;
  ended_in_place();
  if (ended()) return;
  if (suspend_) return suspend();
  start_anew();
  if (!attested()) deadlines();  // a job that is done meets its deadlines
  if (ended()) return;
  if (std::ranges::any_of(live(), [&](const PodView* pod) {
        if (is_spare(*pod)) return false;
        return pod->revision != st_.revision || pod->worker >= spec().replicas;
      })) {
    return roll();
  }
  if (st_.stop_since) forget_attempt();
  st_.stop_since.reset();
  lost_pods();
  avoided_nodes();
  failures();
  if (ended()) return;
  if (resize()) return;
  if (leave_finished_group()) return;
  if (wait_for_gang()) make_pods();
  make_spares();
  tidy_pods();
}

/// Writes the status if it changed. A change of times alone does not count.
void Pass::finish() {
  st_ = own_status_from_json(to_json(st_));  // bounded as the next pass reads it
  keep_small(st_);
  nlohmann::json status = to_json(st_);
  if (status == job().own_status && !plan_.key) return;
  const OwnStatus before = own_status_from_json(job().own_status);
  plan_.events = events_of(before.conditions, st_.conditions);
  if (before.elastic && st_.elastic && before.elastic->resizes != st_.elastic->resizes) {
    plan_.events.push_back({"Normal", "Resized", st_.elastic->message});
  }
  if (before.damage_told != st_.damage_told) {
    plan_.events.push_back({"Warning", "CheckpointDamaged", job().agent.damaged});
  }
  if (!st_.last_failure.is_null() && st_.last_failure != before.last_failure) {
    const auto& failure = st_.last_failure;
    std::string text = json_text(failure, "message");
    for (const char* name : {"pod", "node", "rank", "exitCode", "signal"}) {
      if (!failure.contains(name)) continue;
      const auto& value = failure[name];
      text += std::string(", ") + name + " " +
              (value.is_string() ? value.get<std::string>() : value.dump());
    }
    const std::string reason = json_text(failure, "reason");
    plan_.events.push_back({"Warning", reason.empty() ? kReasonRankFailed : reason, text});
  }
  plan_.status = std::move(status);
}

void Pass::look() {
  if (!o_.job) {
    // The API server's garbage collector does the same; here it covers objects that were created
    // meanwhile. Objects without an owner were orphaned on purpose. The cache may not show that
    // yet, so each delete names the resource version.
    std::erase_if(pods_, [](const PodView* pod) { return pod->owner_uid.empty(); });
    for (const PodView* pod : pods_) remove(*pod);
    lost_pods();
    for (Delete& entry : plan_.deletes) {
      for (const PodView* pod : pods_) {
        if (pod->uid == entry.uid) entry.version = pod->resource_version;
      }
    }
    for (const ChildView& child : o_.children) {
      if (child.owner_uid.empty()) continue;
      plan_.deletes.push_back({.kind = child.kind,
                               .name = child.name,
                               .uid = child.uid,
                               .version = child.resource_version});
    }
    return;
  }
  if (!jobspec::other_controller(job().spec).empty() || job().orphaning) return;
  if (job().deleting) {
    for (const PodView* pod : pods_) remove(*pod);
    lost_pods();
    return;
  }
  if (ended()) {
    st_.observed_generation = job().generation;
    force_ = o_.wanted.accepted ? o_.wanted.accepted : o_.in_force;
    finished();
  } else if (accept()) {
    unfinished();
    note_pods();
    if (ended()) finished();
    pace_pods();
  }
  if (force_ || ended()) tidy_keys();
  st_.damage_told = std::max(st_.damage_told, job().agent.damaged_attempt);
  conditions();
  std::erase_if(st_.conditions, [](const Condition& one) {
    return one.type == kStalled && one.reason == "OperatorError";
  });
  st_.reason = reason_of(st_.phase, st_.conditions);
  set_readiness(st_.phase, st_.reason, job().generation, shown_now(), st_.conditions);
  finish();
}

Plan Pass::run() {
  look();
  if (!o_.job || jobspec::other_controller(job().spec).empty()) leave_queue();
  return std::move(plan_);
}

Plan reconcile(const Observed& observed, Time now) {
  return Pass(observed, now).run();
}

}  // namespace dsj::op
