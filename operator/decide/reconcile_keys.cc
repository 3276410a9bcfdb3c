// Chooses the key for the pods (keys.h), and deletes keys that are no longer used.
#include <algorithm>
#include <set>

#include "operator/decide/pass.h"

namespace dsj::op {

/// Sets the key of the pods that this pass creates, and their agent's image: those of the running
/// pods of the same spec, or of its spares, because the agents of a gang must use the same protocol.
/// Otherwise a new run begins, with a new key and the operator's image. A single worker needs no
/// key.
void Pass::choose_key() {
  if (key_.run > 0 || spec().replicas + spares_ == 1) return;
  const auto join = [&](const PodView* pod) {
    if (!pod || pod->ended() || pod->authority.empty()) return false;
    key_ = {pod->run, pod->authority, pod->image};
    return true;
  };
  for (const Slot& slot : slots_) {
    if (slot.newest && slot.newest->revision == st_.revision && join(slot.newest)) return;
  }
  key_.run = st_.incarnation;
  for (const PodView* pod : pods_) {
    if (is_spare(*pod) && join(pod)) return;
    key_.run = std::max(key_.run, pod->incarnation);
  }
  ++key_.run;
  // The last pass made a key, and no pod could be created with it.
  if (const MadeKey& made = o_.unused_key;
      made.run >= key_.run && made.run == st_.key_run && made.uid == st_.key_uid) {
    key_.run = made.run;
    key_.authority = made.authority;
    return;
  }
  plan_.key = new_key(job(), key_.run, key_.run == st_.key_run ? st_.key_uid : "", now_);
}

/// Why the running pods cannot form a gang with each other or with new pods: all begin a new run.
/// Empty if they can.
std::string Pass::key_problem() const {
  if (spec().replicas == 1 || attempt_open() || attested()) return "";
  std::set<std::string_view> authorities;
  bool missing = false;
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    missing |= !pod || pod->ended();
    if (pod && !pod->ended() && !pod->deleting_from) authorities.insert(pod->authority);
  }
  if (authorities.empty()) return "";
  if (authorities.size() > 1) return "the workers trust different keys of worker 0";
  if (slots_[0].newest && lacked_key(*slots_[0].newest)) return "worker 0's key is gone";
  if (missing && authorities.begin()->empty())
    return "the workers that run were created by an older operator, and a new one has another key";
  return "";
}

/// Deletes keys that no pod uses or will use, because an unused key is only a risk.
void Pass::tidy_keys() {
  const auto alive = live();
  const auto used = [&](int64_t run) {
    return run > 0 &&
           std::ranges::any_of(alive, [&](const PodView* pod) { return pod->run == run; });
  };
  int64_t next = plan_.pods.empty() ? 0 : key_.run;
  for (const PodView* pod : alive) {
    if (next == 0) next = pod->run;
  }
  if (st_.key_run != next && !used(st_.key_run)) {
    if (!st_.key_uid.empty()) plan_.old_key = key_deletion(o_.name, st_.key_run, st_.key_uid);
    st_.key_run = next;
    st_.key_uid.clear();
  }
  const bool old_pods =
      std::ranges::any_of(alive, [](const PodView* pod) { return pod->authority.empty(); });
  for (const ChildView& child : o_.children) {
    if (child.key_set.empty() || child.owner_uid != job().uid || old_pods) continue;
    plan_.deletes.push_back({.kind = child.kind, .name = child.name, .uid = child.uid});
  }
}

}  // namespace dsj::op
