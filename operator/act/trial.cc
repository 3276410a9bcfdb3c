// Tested by: tests/operator/trial_test.cc
#include "operator/act/trial.h"

#include <functional>

#include "operator/observe/own_status.h"
#include "operator/render/render_config.h"
#include "operator/render/render_pod.h"

namespace dsj::op {
namespace {

/// A server is asked again after this time, because it may have been upgraded.
constexpr Seconds kRemembered{3600};
constexpr size_t kPodsMax = 1000;

/// A job's name and uid before it is stored.
constexpr char kNoName[] = "job", kNoUid[] = "00000000-0000-0000-0000-000000000000";

/// Of a new job's objects, admission looks up only the ServiceAccount, which does not exist until
/// the spec is accepted.
Json trial_pod(JobView job, const Settings& settings, const Accepted& accepted) {
  if (job.name.empty()) job.name = kNoName;
  if (job.uid.empty()) job.uid = kNoUid;
  const Observed observed{.ns = job.ns, .name = job.name, .job = job, .settings = settings};
  Json pod = render_pod(observed, accepted, OwnStatus{}, 0, 1).object;
  Json& spec = pod["spec"];
  if (spec["serviceAccountName"] == shared_name(job.name)) spec.erase("serviceAccountName");
  return pod;
}

JobView nameless(JobView job) {
  job.name.clear();
  job.uid.clear();
  return job;
}

/// The hash includes the namespace.
size_t hash_of(const Json& pod) {
  return std::hash<std::string>()(pod.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// Status 422, or 400 from the server's own decoder. Other answers with 400 concern this request
/// only, such as those of a webhook that does not support dry runs.
bool is_final(const kube::ApiError& error) {
  if (error.status == 422) return true;
  return error.status == 400 && error.message.contains("cannot be handled as a Pod");
}

}  // namespace

bool PodTrials::taken(size_t pod, Time now) {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(pod);
  return found != taken_.end() && now < found->second + kRemembered;
}

void PodTrials::remember(size_t pod, Time now) {
  const std::lock_guard lock(mutex_);
  if (taken_.size() >= kPodsMax)
    std::erase_if(taken_, [&](const auto& one) { return now >= one.second + kRemembered; });
  if (taken_.size() >= kPodsMax) taken_.clear();
  taken_[pod] = now;
}

PodAnswer PodTrials::try_pod(kube::Client& client, const JobView& job, const Settings& settings,
                             const Accepted& accepted, Time now) {
  const size_t pod = hash_of(trial_pod(nameless(job), settings, accepted));
  if (taken(pod, now)) return {};
  const auto answer =
      client.try_create(kube::resources::pods(), job.ns, trial_pod(job, settings, accepted));
  if (answer) {
    remember(pod, now);
    return {};
  }
  const kube::ApiError& error = answer.error();
  if (is_final(error)) return {.refusal = error.message};
  if (error.kind == kube::ApiError::Kind::Forbidden) return {.doubt = error.message};
  return {};
}

}  // namespace dsj::op
