// What Kueue must be told. It keeps a pod that failed or was deleted, and the quota of its group, for a successor
// in the same group. Here a gang that lost all of its pods begins a new group, and a job may end.
#include <algorithm>
#include <set>

#include "operator/kueue.h"
#include "operator/pass.h"

namespace dsj::op {
namespace {

bool is_kept(const PodView& pod) {
  return std::ranges::count(pod.finalizers, kKueueFinalizer) > 0;
}

/// The object goes: neither a kubelet nor a successor is to be waited for.
Release let_go(const PodView& pod) {
  auto rest = nlohmann::json::array();
  for (const std::string& one : pod.finalizers)
    if (one != kKueueFinalizer) rest.push_back(one);
  return {.pod = pod.name,
          .metadata = {{"uid", pod.uid},
                       {"resourceVersion", pod.resource_version},  // the list is written as a whole
                       {"finalizers", std::move(rest)}}};
}

Release group_is_over(const PodView& pod) {
  return {.pod = pod.name,
          .metadata = {{"uid", pod.uid}, {"annotations", {{kKueueRetriable, "false"}}}}};
}

}  // namespace

void Pass::leave_queue() {
  if (o_.job && job().orphaning) return;
  std::set<std::string> going_on;
  for (const PodView* pod : live()) going_on.insert(pod->gang);
  for (const PodView* pod : pods_) {
    if (!is_kept(*pod)) continue;
    const bool given_up = std::ranges::any_of(
        plan_.deletes, [&](const Delete& entry) { return entry.force && entry.uid == pod->uid; });
    if (given_up || (pod->deleting_from && pod->node.empty())) {
      plan_.releases.push_back(let_go(*pod));
    } else if (pod->ended() && !pod->group_over && !going_on.contains(pod->gang)) {
      plan_.releases.push_back(group_is_over(*pod));
    }
  }
}

}  // namespace dsj::op
