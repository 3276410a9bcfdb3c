#include "operator/observe/lost_nodes.h"

#include "common/json.h"

namespace dsj::op {

std::set<std::string> lost_nodes(const nlohmann::json& failure_history) {
  std::set<std::string> names;
  for (const nlohmann::json& failure : failure_history) {
    const std::string node = json_text(failure, "node");
    if (json_text(failure, "reason") == "NodeLost" && !node.empty()) names.insert(node);
  }
  return names;
}

std::set<std::string> nodes_to_avoid(const Observed& observed, const Accepted& accepted,
                                     const OwnStatus& status) {
  // Kueue admits a replacement pod into a running group only if it has the same shape.
  if (accepted.job.policies.run.scheduling.scheduler == jobspec::GangScheduler::Kueue) return {};
  const auto& failure = accepted.job.policies.failure;
  std::set<std::string> names;
  for (const UnhealthyNode& node : status.unhealthy) {
    if (node.until || failure.node_health.action == jobspec::NodeHealthAction::Move)
      names.insert(node.name);
  }
  if (!failure.exclude_failed_nodes) return names;
  for (const std::string& node : lost_nodes(status.failure_history)) {
    const auto seen = observed.nodes.find(node);
    if (seen != observed.nodes.end() && !seen->second.ready) names.insert(node);
  }
  return names;
}

}  // namespace dsj::op
