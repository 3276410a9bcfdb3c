// What Kueue must be told. It keeps a pod that failed or was deleted, and the quota of its group, for a successor
// in the same group. Here a gang that lost all of its pods begins a new group, and a job may end. A group that is
// finished is left by all.
#include <algorithm>
#include <set>

#include "operator/decide/pass.h"
#include "operator/observe/kueue.h"

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

/// Takes a gang out of a group that Kueue has finished. Nobody is admitted there any more, so its pods would keep their gates
/// for ever. A pod gets into one if its creation had no answer, and it comes to be after the group was told to be over.
/// All pods go, because the successor of a single one would wait for the others in a group of its own. Nothing is charged.
/// True: no pod may be made and none tidied away yet. A new one would join those that still go, and only ended pods tell that
/// their group is over. tidy_replaced() may remove the last that tells while another pod is admitted: then the gang is
/// released when it is not whole in time.
bool Pass::leave_finished_group() {
  std::set<std::string> finished;
  for (const PodView* pod : pods_)
    if (pod->ended() && pod->group_over && !pod->gang.empty()) finished.insert(pod->gang);
  bool waits = false, in_vain = false, leaving = false;
  for (const PodView* pod : live()) {
    const bool late = finished.contains(pod->gang);
    if (pod->deleting_from) {
      leaving |= late;
      continue;
    }
    if (!pod->gated) return false;
    waits = true;
    in_vain |= late;
  }
  if (waits ? !in_vain : !leaving) return false;
  st_.incomplete.reset();
  for (const PodView* pod : live()) remove(*pod);
  return true;
}

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
