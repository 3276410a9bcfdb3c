#include "operator/render/topology.h"

#include "job/contract.h"

namespace dsj::op {
namespace {

using jobspec::GangScheduler;
using jobspec::Topology;

/// The highest weight of a preferred term in a node's score.
constexpr int kWeight = 100;

}  // namespace

void enter_topology(const jobspec::Job& job, const std::string& job_name, int worker,
                    const std::string& gang, Json& metadata, Json& spec) {
  const auto& topology = job.policies.topology;
  if (!topology) return;
  const bool required = topology->mode == Topology::Mode::Required;
  // An affinity would be part of the shape that Kueue admits. Kueue places the whole group itself.
  if (!gang.empty() && job.policies.run.scheduling.scheduler == GangScheduler::Kueue) {
    metadata["annotations"][required ? "kueue.x-k8s.io/podset-required-topology"
                                     : "kueue.x-k8s.io/podset-preferred-topology"] = topology->key;
    metadata["labels"]["kueue.x-k8s.io/pod-group-pod-index"] = std::to_string(worker);
    return;
  }
  const Json others = {
      {contract::kLabelJobName, job_name},
      {contract::kLabelReplicaType, metadata["labels"][contract::kLabelReplicaType]}};
  Json term = {{"labelSelector", {{"matchLabels", others}}}, {"topologyKey", topology->key}};
  Json& near = spec["affinity"]["podAffinity"];
  if (required) {
    near["requiredDuringSchedulingIgnoredDuringExecution"].push_back(std::move(term));
  } else {
    near["preferredDuringSchedulingIgnoredDuringExecution"].push_back(
        {{"weight", kWeight}, {"podAffinityTerm", std::move(term)}});
  }
}

}  // namespace dsj::op
