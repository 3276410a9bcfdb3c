// What Kueue needs to know. It keeps the object of a failed or deleted pod, and its group's quota,
// for a successor in the same group. But a gang that lost all of its pods begins a new group, and a
// job may end. A gang leaves a group that is finished.
#include <algorithm>
#include <set>

#include "operator/decide/pass.h"
#include "operator/observe/kueue.h"

namespace dsj::op {
namespace {

bool is_kept(const PodView& pod) {
  return std::ranges::count(pod.finalizers, kKueueFinalizer) > 0;
}

/// Removes Kueue's finalizer so that the object goes, without waiting for a kubelet or a successor.
Release let_go(const PodView& pod) {
  auto rest = nlohmann::json::array();
  for (const std::string& one : pod.finalizers)
    if (one != kKueueFinalizer) rest.push_back(one);
  return {.pod = pod.name,
          .metadata = {{"uid", pod.uid},
                       {"resourceVersion", pod.resource_version},  // the patch replaces a list
                       {"finalizers", std::move(rest)}}};
}

Release group_is_over(const PodView& pod) {
  return {.pod = pod.name,
          .metadata = {{"uid", pod.uid}, {"annotations", {{kKueueRetriable, "false"}}}}};
}

}  // namespace

/// Takes a gang out of a group that Kueue has finished: it admits no more pods, so the gang's pods
/// would stay gated forever. A pod gets into such a group if its creation had no answer and took
/// effect after the group was declared over. All pods are deleted, because the successor of a
/// single one would wait for the others in a group of its own. Nothing is charged. Returns true if
/// no pod may be created or tidied yet: a new one would join the leaving ones, and only ended pods
/// show that their group is over. tidy_replaced() may remove the last of those while another pod is
/// admitted; then the gang is released at its deadline.
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
