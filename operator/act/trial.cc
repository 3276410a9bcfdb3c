// Tested by: tests/operator/trial_test.cc
#include "operator/act/trial.h"

#include "operator/observe/own_status.h"
#include "operator/render/render_config.h"
#include "operator/render/render_pod.h"

namespace dsj::op {
namespace {

/// What a job has as its name and uid before it is stored.
constexpr char kNoName[] = "job", kNoUid[] = "00000000-0000-0000-0000-000000000000";

/// Of a new job's objects admission looks up one, the account, which is made once the spec is accepted.
Json trial_pod(JobView job, const Settings& settings, const Accepted& accepted) {
  if (job.name.empty()) job.name = kNoName;
  if (job.uid.empty()) job.uid = kNoUid;
  const Observed observed{.ns = job.ns, .name = job.name, .job = job, .settings = settings};
  Json pod = render_pod(observed, accepted, OwnStatus{}, 0, 1).object;
  Json& spec = pod["spec"];
  if (spec["serviceAccountName"] == shared_name(job.name)) spec.erase("serviceAccountName");
  return pod;
}

/// 422, or 400 from the server's own decoder. Other answers with 400 speak of this request, such as those of a webhook without
/// dry runs.
bool is_final(const kube::ApiError& error) {
  if (error.status == 422) return true;
  return error.status == 400 && error.message.contains("cannot be handled as a Pod");
}

}  // namespace

std::string refusal_of_pod(kube::Client& client, const JobView& job, const Settings& settings,
                           const Accepted& accepted) {
  const auto answer =
      client.try_create(kube::resources::pods(), job.ns, trial_pod(job, settings, accepted));
  return answer || !is_final(answer.error()) ? "" : answer.error().message;
}

}  // namespace dsj::op
