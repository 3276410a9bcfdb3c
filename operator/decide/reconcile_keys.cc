// Which set of keys the pods get (keys.h), and which are in use no more.
#include <algorithm>

#include "job/join_keys.h"
#include "operator/decide/pass.h"
#include "operator/render/keys.h"

namespace dsj::op {

/// The set of the pods that live and run the same spec, or wait to (elastic); else a new one, for a new
/// run. Empty: there is nobody to prove anything to, or the pods that live were made without keys.
std::string Pass::key_set() const {
  if (spec().replicas + spares_ == 1) return "";
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    const bool same = pod && !pod->ended() && pod->revision == st_.revision;
    // A single worker needs none, but the gang that it grows into does.
    if (same && (spec().replicas > 1 || !pod->keys.empty())) return pod->keys;
  }
  for (const PodView* pod : pods_) {
    if (is_spare(*pod) && !pod->ended() && !pod->keys.empty()) return pod->keys;
  }
  return std::to_string(st_.incarnation + 1);
}

/// A new run whose set cannot be made takes the next number. Its pods then have that number, too.
void Pass::skip_taken_set() {
  st_.incarnation = std::max(st_.incarnation, counted(run_of(o_.taken_set)));
}

/// Worker 0's pod ended because it had no key. The agent waits for longer than this margin, and clocks differ by less.
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
  // Somebody deleted the ConfigMap of a gang that lives, and perhaps its first Secret. A kubelet keeps what it has mounted
  // of an immutable Secret, whatever has the name by now: the new key gets another.
  auto& slots = plan_.keys->slots;
  if (!seen && !plan_.keys->may_move && !slots.empty())
    std::ranges::rotate(slots, slots.begin() + 1);
}

/// Deletes the sets that no pod has and none will get. A key that is used no more must not lie about.
void Pass::tidy_keys() {
  for (const ChildView& child : o_.children) {
    if (child.key_set.empty() || child.owner_uid != job().uid || child.key_set == keys_) continue;
    const bool in_use =
        std::ranges::any_of(live(), [&](const PodView* pod) { return pod->keys == child.key_set; });
    // A set of a run whose pods are not all seen yet.
    if (in_use || (!ended() && run_of(child.key_set) > st_.incarnation)) continue;
    for (const WorkerKey& key : child.keys) {
      plan_.deletes.push_back(key_deletion(o_.name, child.key_set, key));
    }
    plan_.deletes.push_back({.kind = child.kind, .name = child.name, .uid = child.uid});
  }
}

}  // namespace dsj::op
