// Nodes on which an agent's ranks could not start (job/node_health.h): kept in the status for as long
// as new pods of the job avoid them. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/observe/times.h"

namespace dsj::op {

/// More are not remembered: the ones found longest ago go first.
inline constexpr size_t kUnhealthyMax = 32;

struct UnhealthyNode {
  std::string name, message;
  Time found{};  ///< last
  /// Until when it is avoided, whatever the job's policy: its kubelet did not take a pod in. nullopt: its agent found it
  /// unfit, and the policy says for how long.
  std::optional<Time> until = {};
  int times = 1;  ///< since it is in the list
};

/// Enters a find, or moves the node's entry to the end of the list.
void note_unhealthy(std::vector<UnhealthyNode>& nodes, const std::string& name,
                    const std::string& message, Time now, std::optional<Time> until = {});
/// For so long a node is avoided that rejected a pod: after a boot devices come later than the node.
inline constexpr Seconds kRejectedAvoid{120};
/// Drops what was found `avoid` ago or before, or whose own time is over. Result: when the next entry goes; nullopt: none is
/// left.
std::optional<Time> forget_unhealthy(std::vector<UnhealthyNode>& nodes, Seconds avoid, Time now);
std::set<std::string> names_of(const std::vector<UnhealthyNode>& nodes);

/// How long to wait before pods are made again after `found` were found unfit in one pass. None, as
/// long as the list keeps new pods away from them. A node that was found again did not stay avoided,
/// and a full list forgets: then the pause doubles with each find, up to five minutes.
Seconds pause_after(const std::vector<UnhealthyNode>& nodes, const std::set<std::string>& found);

/// "n1,n2", for a pod's annotation, and back.
std::string avoids_text(const std::set<std::string>& names);
std::set<std::string> avoids_from_text(const std::string& text);

}  // namespace dsj::op
