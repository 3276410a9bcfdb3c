// Which pods a job has, which are missing, and which must be deleted.
#include <algorithm>

#include "job/contract.h"
#include "operator/decide/pass.h"
#include "operator/decide/pod_pace.h"
#include "operator/observe/child_content.h"
#include "operator/render/render_config.h"
#include "operator/render/render_gang.h"
#include "operator/render/render_pod.h"

namespace dsj::op {
namespace {

/// True if somebody changed the object, or an older operator rendered it differently. Fields that the
/// cluster's policies add to every write do not count.
bool differs(const ChildView& child, size_t wanted, const AdmittedObjects& admitted) {
  if (child.content == wanted) return false;
  const auto found = admitted.find({child.kind, child.name});
  return found == admitted.end() || found->second.sent != wanted ||
         found->second.stored != child.content;
}

}  // namespace

void Pass::group_pods() {
  slots_.clear();
  for (int worker = 0; worker < spec().replicas; ++worker) slots_.push_back({.worker = worker});
  for (const PodView* pod : pods_) {
    if (pod->worker >= static_cast<int>(slots_.size())) continue;
    Slot& slot = slots_[pod->worker];
    const PodView* older = pod;
    if (!slot.newest || pod->incarnation > slot.newest->incarnation) {
      older = slot.newest;
      slot.newest = pod;
    }
    if (older) slot.older.push_back(older);
  }
  for (Slot& slot : slots_) {
    std::ranges::sort(slot.older, std::greater<>(), &PodView::incarnation);
  }
}

/// One above both the worker's newest pod and the number in the status, because a newer pod may
/// have come and gone. The number does not change until its pod is seen: a second leader, or a pass
/// after a lost answer, then finds the name taken and creates no second pod.
int64_t Pass::next_incarnation(const Slot& slot) const {
  return 1 + std::max(slot.newest ? slot.newest->incarnation : 0, st_.incarnation);
}

/// The scheduling group of pods that are created now: the group of the run that they join, even if
/// the policy changed; a new group if they begin a run.
std::string Pass::gang() const {
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    if (!pod || pod->ended() || pod->revision != st_.revision) continue;
    return is_gang_of(spec(), o_.name, pod->gang) ? pod->gang : "";
  }
  return gang_name(spec(), o_.name, st_.incarnation + 1);
}

/// Deletes groups other than `keep` once none of their pods can run.
void Pass::tidy_gangs(const std::string& keep) {
  for (const ChildView& child : o_.children) {
    if (child.kind != "PodGroup" || child.owner_uid != job().uid || child.name == keep) continue;
    const bool in_use =
        std::ranges::any_of(live(), [&](const PodView* pod) { return pod->gang == child.name; });
    if (in_use) continue;
    plan_.deletes.push_back({.kind = child.kind, .name = child.name, .uid = child.uid});
  }
}

/// Whether an object that others keep changing must not be restored yet.
bool Pass::waits_out(const ObjectName& object) {
  const auto found = o_.contests.find(object);
  if (found == o_.contests.end()) return false;
  const Time from = restorable_from(found->second);
  if (from <= now_) return false;
  due(from);
  return true;
}

/// `shared_only`: only makes what is missing of what every gang of the job uses: no ConfigMap of a
/// spec, no group.
void Pass::make_children(bool shared_only) {
  auto objects = render_config(o_, *force_);
  if (auto group = render_gang(job(), *force_, gang())) objects.push_back(std::move(*group));
  if (shared_only)
    std::erase_if(objects, [&](const Create& one) { return one.name != shared_name(o_.name); });
  for (Create& create : objects) {
    const auto child = std::ranges::find_if(o_.children, [&](const ChildView& entry) {
      return entry.kind == create.kind && entry.name == create.name && entry.owner_uid == job().uid;
    });
    const bool changed = child != o_.children.end() &&
                         ((!child->labelled && child->content != 0) ||
                          differs(*child, content_of(create.kind, create.object), o_.admitted));
    if (child != o_.children.end() && (!changed || shared_only)) continue;
    const bool waits = waits_out({create.kind, create.name});
    if (child == o_.children.end()) {
      withheld_ |= waits;
      if (!waits) plan_.creates.push_back(std::move(create));
    } else if (!waits) {
      create.object["metadata"]["resourceVersion"] = child->resource_version;
      create.object["metadata"]["uid"] = child->uid;
      plan_.updates.push_back(std::move(create));
    }
  }
}

/// Replaces worker 0's pod if the job's ServiceAccount was deleted and created again. The API
/// server rejects tokens of the old account, and a kubelet keeps a token for most of an hour. All
/// ranks save a step, and the new pod can report again. Other workers do not use the API. Pods of
/// older operators lack the annotation; for them creation times are compared.
void Pass::replace_disowned() {
  constexpr Seconds kSkew{10};  // between API servers, whose clocks set both times
  const PodView* zero = slots_.empty() ? nullptr : slots_[0].newest;
  if (!zero || zero->ended() || zero->deleting_from || !zero->created) return;
  const bool disowned = std::ranges::any_of(o_.children, [&](const ChildView& child) {
    if (child.kind != "ServiceAccount" || child.owner_uid != job().uid ||
        child.name != service_account_of(force_->job, o_.name)) {
      return false;
    }
    if (!zero->account.empty()) return child.uid != zero->account;
    return child.created && *child.created > *zero->created + kSkew;
  });
  if (disowned && !attested()) remove(*zero);
}

void Pass::make_pods() {
  make_children();
  replace_disowned();
  std::vector<const Slot*> empty;
  for (const Slot& slot : slots_) {
    const bool old = slot.newest && slot.newest->revision != st_.revision;
    const bool bad = slot.newest && slot.newest->ended();
    if (!slot.newest || old || bad) empty.push_back(&slot);
  }
  // Workers that are done wait for the others, unless their attempt ended differently.
  const bool only_done = attested() && std::ranges::all_of(empty, [&](const Slot* slot) {
                           return !slot->newest || said_done(slot->newest);
                         });
  if (empty.empty() || only_done) return;
  creating_ = true;
  if (withheld_) return;  // a pod without its NetworkPolicy is open
  // After a charged restart, no pod is created before its pause is over.
  if (st_.restarts.not_before && now_ < *st_.restarts.not_before) {
    return due(*st_.restarts.not_before);
  }
  choose_key();
  const std::string group = gang();
  for (const Slot* slot : empty) {
    plan_.pods.push_back(
        render_pod(o_, *force_, st_, slot->worker, next_incarnation(*slot), group, key_));
  }
}

/// Keeps only the newest failed pod of each worker, for its logs. A pod that only found its node
/// unfit is not kept: the status has the finding, and it would be counted again when its successor
/// is gone.
void Pass::tidy_replaced() {
  for (const Slot& slot : slots_) {
    bool kept = false;
    for (const PodView* pod : slot.older) {
      if (ended() && !pod->ended()) continue;  // handled like every running pod of a finished job
      const bool failed = pod->phase == PodView::Phase::Failed && !pod->lingers &&
                          !is_preempted(*pod) && !found_unfit(*pod) && !lacked_key(*pod) &&
                          !is_rejected(*pod);
      if (failed && !kept) {
        kept = true;
      } else {
        remove(*pod);  // if it still runs, its worker would have two pods
      }
    }
  }
}

void Pass::tidy_pods() {
  for (const PodView* pod : pods_) {
    if (pod->worker >= spec().replicas && pod->ended()) remove(*pod);
  }
  tidy_replaced();
  if (!creating_ || !plan_.pods.empty()) tidy_gangs(gang());
  for (const ChildView& child : o_.children) {
    const bool stale =
        child.kind == "ConfigMap" && child.owner_uid == job().uid && !child.revision.empty() &&
        child.revision != st_.revision && child.revision != spare_revision_ &&
        std::ranges::none_of(live(),
                             [&](const PodView* pod) { return pod->revision == child.revision; });
    if (stale) {
      plan_.deletes.push_back({.kind = child.kind, .name = child.name, .uid = child.uid});
    }
  }
}

/// Delays pods that the token bucket does not allow yet.
void Pass::pace_pods() {
  plan_.workers = spec().replicas + spares_;
  if (plan_.pods.empty()) return;
  const Time from =
      pods_from(o_.pods_full, plan_.workers, static_cast<int>(plan_.pods.size()), now_);
  if (from <= now_) return;
  plan_.pods.clear();
  plan_.key.reset();
  paced_ = true;
  due(from);
}

/// Writes pod counts to the status. It records pod numbers before pods are deleted and once the
/// gang is complete; until then the pods themselves carry the number.
void Pass::note_pods() {
  int64_t running = 0, there = 0;
  const bool whole = !slots_.empty() && std::ranges::all_of(slots_, [](const Slot& slot) {
    return slot.newest != nullptr;
  });
  for (const PodView* pod : pods_) {
    const bool member = !is_spare(*pod);
    there += member && !pod->ended();
    running += member && pod->phase == PodView::Phase::Running && !pod->deleting_from;
    const bool deleted = std::ranges::any_of(
        plan_.deletes, [&](const Delete& entry) { return entry.uid == pod->uid; });
    if (whole || deleted || pod->deleting_from) {
      st_.incarnation = std::max(st_.incarnation, pod->incarnation);
    }
  }
  st_.replicas = there;
  st_.workers = std::to_string(running) + "/" + std::to_string(spec().replicas);
}

}  // namespace dsj::op
