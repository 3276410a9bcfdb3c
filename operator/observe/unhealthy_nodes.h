// The nodes on which an agent could not start ranks (job/node_health.h). The status lists them as
// long as new pods of the job avoid them. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/observe/times.h"

namespace dsj::op {

/// If more are found, those found longest ago are dropped.
inline constexpr size_t kUnhealthyMax = 32;

struct UnhealthyNode {
  std::string name, message;
  Time found{};  ///< when it was found unfit last
  /// Until when it is avoided, independent of the job's policy, because its kubelet rejected a pod.
  /// nullopt if its agent found it unfit: then the policy sets the time.
  std::optional<Time> until = {};
  int times = 1;  ///< how often it was found since it entered the list
};

/// Adds a node, or moves its entry to the end of the list.
void note_unhealthy(std::vector<UnhealthyNode>& nodes, const std::string& name,
                    const std::string& message, Time now, std::optional<Time> until = {});
/// How long a node that rejected a pod is avoided: after a boot, devices register later than the
/// node.
inline constexpr Seconds kRejectedAvoid{120};
/// Drops entries that were found `avoid` ago or earlier, or whose `until` has passed. Returns when
/// the next entry expires; nullopt if the list is empty.
std::optional<Time> forget_unhealthy(std::vector<UnhealthyNode>& nodes, Seconds avoid, Time now);
std::set<std::string> names_of(const std::vector<UnhealthyNode>& nodes);

/// How long to wait before pods are created again after `found` were found unfit in one pass. No
/// pause while the list keeps new pods away from these nodes. If a node was found again, or if the
/// list is full and drops entries, the pause doubles with each find, up to five minutes.
Seconds pause_after(const std::vector<UnhealthyNode>& nodes, const std::set<std::string>& found);

/// "n1,n2", for a pod's annotation, and back.
std::string avoids_text(const std::set<std::string>& names);
std::set<std::string> avoids_from_text(const std::string& text);

}  // namespace dsj::op
