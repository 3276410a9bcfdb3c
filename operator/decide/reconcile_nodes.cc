// Nodes to avoid, because an agent found them unfit or because they were lost: for how long, and
// which pods are affected.
#include <algorithm>

#include "job/node_health.h"
#include "operator/decide/pass.h"
#include "operator/observe/lost_nodes.h"

namespace dsj::op {

/// Records the node of every pod that ended this way, including spares and pods whose end was
/// charged with another's. The creation time tells whether a pod was recorded before.
void Pass::note_nodes() {
  for (const PodView* pod : pods_) {
    const bool rejected = is_rejected(*pod);
    if (pod->node.empty() || (!rejected && !found_unfit(*pod)) ||
        (pod->worker < std::ssize(slots_) && slots_[pod->worker].newest != pod))
      continue;
    const auto known = std::ranges::find(st_.unhealthy, pod->node, &UnhealthyNode::name);
    if (known != st_.unhealthy.end() && known->found >= pod->created.value_or(Time{})) continue;
    if (rejected) {
      note_unhealthy(st_.unhealthy, pod->node, pod->reason + ": " + pod->message, shown_now(),
                     shown_now() + kRejectedAvoid);
    } else {
      note_unhealthy(st_.unhealthy, pod->node, pod->termination->message, shown_now());
      mark_node(st_.unhealthy.back());
    }
  }
}

void Pass::mark_node(const UnhealthyNode& node) {
  if (o_.settings.node_marks == NodeMarks::None) return;
  std::erase_if(plan_.marks, [&](const NodeMark& mark) { return mark.node == node.name; });
  plan_.marks.push_back(node_mark(node.name, o_.ns + "/" + o_.name, node.message, node.found));
}

/// A pending pod keeps the node list that it was created with. Once the list is shorter, the pod is
/// replaced: on a small cluster it might otherwise wait although an allowed node is available.
void Pass::avoided_nodes() {
  const Seconds avoid(spec().policies.failure.node_health.avoid_seconds);
  forget_unhealthy(st_.unhealthy, avoid, now_);
  note_nodes();
  if (const auto next = forget_unhealthy(st_.unhealthy, avoid, now_)) due(*next);
  const auto names = nodes_to_avoid(o_, *force_, st_);
  for (const PodView* pod : live()) {
    if (pod->avoids.empty() || pod->scheduled || !pod->node.empty()) continue;
    if (!std::ranges::includes(names, avoids_from_text(pod->avoids))) remove(*pod);
  }
}

/// The pause before pods are created again after these failures of one attempt.
Seconds Pass::node_pause(const std::vector<PodFailure>& failures) const {
  std::set<std::string> found;
  for (const PodFailure& failure : failures) {
    if (failure.said.reason == contract::kReasonUnhealthyNode)
      found.insert(failure.said.node.value_or(""));
  }
  return found.empty() ? Seconds(0) : pause_after(st_.unhealthy, found);
}

}  // namespace dsj::op
