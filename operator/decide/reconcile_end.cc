// How the operator ends a job, and what it keeps of it.
#include "operator/decide/fetching.h"
#include "operator/decide/pass.h"

namespace dsj::op {

void Pass::fail(const std::string& reason, const std::string& message) {
  st_.completion = shown_now();
  set("Failed", true, reason, message);
}

void Pass::deadlines() {
  const auto& run = spec().policies.run;
  if (!st_.start) return;  // a queue holds the pods
  if (run.active_deadline_seconds) {
    const Time end = *st_.start + Seconds(*run.active_deadline_seconds);
    if (now_ >= end) {
      return fail("DeadlineExceeded",
                  "the job was active for " + std::to_string(*run.active_deadline_seconds) + " s");
    }
    due(end);
  }
  const auto from = startup_from(st_.conditions, *st_.start);
  if (run.startup_deadline_seconds && !has_trained() && from) {
    const Time end = *from + Seconds(*run.startup_deadline_seconds);
    if (now_ >= end) {
      const auto [missing, first] = missing_workers();
      return fail("StartupDeadlineExceeded",
                  "no attempt was running " + std::to_string(*run.startup_deadline_seconds) +
                      (*from == *st_.start ? " s after the start" : " s after data was fetched") +
                      (missing > 0 ? ": " + first : ""));
    }
    due(end);
  }
}

/// A finished job: keeps what cleanPodPolicy says, and no running pod.
void Pass::finished() {
  const jobspec::Policies policies = force_ ? spec().policies : jobspec::Policies{};
  const Time end = st_.completion.value_or(now_);
  plan_.key.reset();
  key_ = {};
  plan_.creates.clear();
  plan_.updates.clear();
  plan_.pods.clear();
  const bool all = policies.run.clean_pods == jobspec::CleanPods::All;
  for (const PodView* pod : pods_) {
    const Time patience = end + Seconds(policies.save_timeout_seconds);
    const bool runs = !pod->ended() || pod->lingers;
    if (runs && policies.run.clean_pods == jobspec::CleanPods::None && now_ < patience) {
      due(patience);
    } else if (all || runs) {
      remove(*pod);
    }
  }
  if (force_ && !all) {
    group_pods();
    tidy_replaced();  // the pass that ended the job may be the first to see their successors
  }
  lost_pods();
  tidy_gangs({});
  st_.replicas = 0;
  for (const PodView* pod : pods_) st_.replicas += !pod->ended();
  if (!policies.run.ttl_seconds_after_finished) return;
  const Time ttl = end + Seconds(*policies.run.ttl_seconds_after_finished);
  if (now_ < ttl) return due(ttl);
  plan_.deletes.push_back({.kind = "DeepSpeedJob", .name = job().name, .uid = job().uid});
}

}  // namespace dsj::op
