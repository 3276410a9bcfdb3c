// Chooses the key set for the pods (keys.h), and deletes sets that are no longer used.
#include <algorithm>

#include "job/join_keys.h"
#include "operator/decide/pass.h"
#include "operator/render/keys.h"

namespace dsj::op {

/// The key set of the running pods of the same spec, or of its spares; otherwise a new set for a
/// new run. Empty if a single worker needs no keys, or if the running pods were created without
/// keys.
std::string Pass::key_set() const {
  if (spec().replicas + spares_ == 1) return "";
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    const bool same = pod && !pod->ended() && pod->revision == st_.revision;
    // A single worker needs no keys, but the gang that it grows into does.
    if (same && (spec().replicas > 1 || !pod->keys.empty())) return pod->keys;
  }
  for (const PodView* pod : pods_) {
    if (is_spare(*pod) && !pod->ended() && !pod->keys.empty()) return pod->keys;
  }
  return std::to_string(st_.incarnation + 1);
}

/// If a new run's key set cannot be created, the run takes the next number, and so do its pods.
void Pass::skip_taken_set() {
  st_.incarnation = std::max(st_.incarnation, counted(run_of(o_.taken_set)));
}

/// Creation time, plus a margin, of a worker 0 pod that ended because its key was missing. The
/// agent waits longer than the margin; clocks differ by less.
std::optional<Time> Pass::keys_lost_before() const {
  const PodView* zero = slots_.empty() ? nullptr : slots_[0].newest;
  if (!zero || zero->keys != keys_ || !lacked_key(*zero) || !zero->created) return std::nullopt;
  return *zero->created + kKeyPatience / 2;
}

void Pass::make_keys() {
  keys_ = key_set();
  if (keys_.empty()) return;
  const ChildView* seen = nullptr;
  for (const ChildView& child : o_.children) {
    if (child.kind == "ConfigMap" && child.owner_uid == job().uid && child.key_set == keys_) {
      seen = &child;
    }
  }
  const KeyPlan plan =
      plan_keys(seen ? seen->keys : std::vector<WorkerKey>(), now_, keys_lost_before());
  if (plan.again) due(*plan.again);
  if (plan.again && plan.drop.empty()) return;
  plan_.keys = key_change(job(), keys_, seen, plan, now_);
  plan_.keys->may_move =
      !seen && std::ranges::none_of(live(), [&](const PodView* pod) { return pod->keys == keys_; });
  // The ConfigMap of a running gang was deleted, and perhaps its first Secret. A kubelet keeps the
  // mounted content of an immutable Secret even if a new Secret has the same name, so the new key
  // gets another slot.
  auto& slots = plan_.keys->slots;
  if (!seen && !plan_.keys->may_move && !slots.empty())
    std::ranges::rotate(slots, slots.begin() + 1);
}

/// Deletes key sets that no pod uses or will use, because an unused key is only a risk.
void Pass::tidy_keys() {
  for (const ChildView& child : o_.children) {
    if (child.key_set.empty() || child.owner_uid != job().uid || child.key_set == keys_) continue;
    const bool in_use =
        std::ranges::any_of(live(), [&](const PodView* pod) { return pod->keys == child.key_set; });
    // The pods of this set's run may not be in the cache yet.
    if (in_use || (!ended() && run_of(child.key_set) > st_.incarnation)) continue;
    for (const WorkerKey& key : child.keys) {
      plan_.deletes.push_back(key_deletion(o_.name, child.key_set, key));
    }
    plan_.deletes.push_back({.kind = child.kind, .name = child.name, .uid = child.uid});
  }
}

}  // namespace dsj::op
