#include "operator/render/render_gang.h"

#include "job/contract.h"
#include "operator/render/render_config.h"

namespace dsj::op {
namespace {

using jobspec::GangScheduler;

const jobspec::Scheduling& policy_of(const jobspec::Job& job) {
  return job.policies.run.scheduling;
}

std::string prefix_of(const jobspec::Job& job, const std::string& name) {
  switch (policy_of(job).scheduler) {
    case GangScheduler::None:
      return {};
    case GangScheduler::Volcano:
      return name + "-volcano-";
    case GangScheduler::Kueue:
      return name + "-kueue-";
  }
  return {};
}

}  // namespace

std::string gang_name(const jobspec::Job& job, const std::string& name, int64_t first_incarnation) {
  const std::string prefix = prefix_of(job, name);
  return prefix.empty() ? prefix : prefix + std::to_string(first_incarnation);
}

bool is_gang_of(const jobspec::Job& job, const std::string& name, const std::string& gang) {
  const std::string prefix = prefix_of(job, name);
  return !prefix.empty() && gang.starts_with(prefix);
}

std::optional<Create> render_gang(const JobView& job, const Accepted& accepted,
                                  const std::string& gang) {
  const jobspec::Scheduling& policy = policy_of(accepted.job);
  if (gang.empty() || policy.scheduler != GangScheduler::Volcano) return std::nullopt;
  Json spec = {{"minMember", policy.min_available.value_or(accepted.job.replicas)}};
  if (!policy.queue.empty()) spec["queue"] = policy.queue;
  if (!policy.priority_class.empty()) spec["priorityClassName"] = policy.priority_class;
  Json metadata = metadata_of(job, gang);
  metadata["labels"][contract::kLabelGang] = gang;
  return Create{.kind = "PodGroup",
                .name = gang,
                .object = {{"apiVersion", "scheduling.volcano.sh/v1beta1"},
                           {"kind", "PodGroup"},
                           {"metadata", std::move(metadata)},
                           {"spec", std::move(spec)}}};
}

void enter_gang(const jobspec::Job& job, const std::string& gang, Json& metadata, Json& spec) {
  const jobspec::Scheduling& policy = policy_of(job);
  if (gang.empty() || policy.scheduler == GangScheduler::None) return;
  metadata["labels"][contract::kLabelGang] = gang;
  if (policy.scheduler == GangScheduler::Volcano) {
    metadata["annotations"]["scheduling.k8s.io/group-name"] = gang;
    spec["schedulerName"] = "volcano";
    return;
  }
  metadata["labels"]["kueue.x-k8s.io/queue-name"] = policy.queue;
  metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = gang;
  if (!policy.priority_class.empty()) {
    metadata["labels"]["kueue.x-k8s.io/priority-class"] = policy.priority_class;
  }
  metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = std::to_string(job.replicas);
}

}  // namespace dsj::op
