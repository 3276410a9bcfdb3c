// Elastic jobs: the size in force, the input of choose_size(), and the spares that request nodes
// for a larger gang.
#include <algorithm>

#include "operator/decide/pass.h"
#include "operator/observe/elastic_size.h"
#include "operator/render/render_config.h"
#include "operator/render/render_pod.h"

namespace dsj::op {
namespace {

/// The same spec with a different number of workers.
std::shared_ptr<const Accepted> sized(const Accepted& accepted, int workers,
                                      const std::string& revision) {
  auto copy = std::make_shared<Accepted>(accepted);
  copy->job.replicas = workers;
  copy->revision = revision;
  return copy;
}

}  // namespace

/// Sets the size at the start of a pass: the last one, unless the spec now forbids it.
void Pass::enter_elastic() {
  if (force_->sizes.empty()) return st_.elastic.reset();
  if (!st_.elastic) st_.elastic.emplace();
  ElasticState& state = *st_.elastic;
  // A refused edit changes nothing, and the ConfigMap may contain the number of an older spec.
  wanted_ = o_.wanted.accepted || state.wanted == 0 ? spec().replicas : state.wanted;
  const int size = permitted_size(force_->sizes, wanted_, state.replicas);
  if (size == state.replicas) return;
  if (state.replicas > 0) {
    ++state.resizes;
    state.changed = shown_now();
    state.message = std::to_string(size) + " workers in place of " +
                    std::to_string(state.replicas) + ": the spec asks for it";
  }
  state.replicas = size;
  state.wanted = wanted_;
}

/// Sets the spec in force and the status to the revision `base` at the size in force.
void Pass::take_size(const std::string& base) {
  const int workers = st_.elastic ? st_.elastic->replicas : spec().replicas;
  st_.revision = st_.elastic ? sized_revision(base, workers, st_.elastic->resizes) : base;
  if (force_->revision != st_.revision) force_ = sized(*force_, workers, st_.revision);
  st_.config_map = config_map_name(o_.name, st_.revision);
  st_.world_size = spec().world_size();
}

/// A pod of the gang that may follow this one. Its agent waits for the next worker 0.
bool Pass::is_spare(const PodView& pod) const {
  return st_.elastic && resizes_of(pod.revision) == std::to_string(st_.elastic->resizes + 1) &&
         base_revision(pod.revision) == base_revision(st_.revision);
}

/// A spare that became a worker of the gang in force. It stays while the previous gang is deleted.
bool Pass::goes_on(const PodView& pod) const {
  return st_.elastic && !pod.ended() && pod.revision == st_.revision &&
         pod.worker < spec().replicas;
}

bool Pass::node_answers(const PodView& pod) const {
  if (pod.node.empty() || pod.ended() || pod.deleting_from) return false;
  const auto node = o_.nodes.find(pod.node);
  return node == o_.nodes.end() || node->second.ready;
}

ElasticSeen Pass::seen_sizes() const {
  const AgentStatus& agent = job().agent;
  ElasticSeen seen{.sizes = force_->sizes,
                   .wanted = std::max(wanted_, force_->sizes.front()),
                   .policy = *spec().policies.elastic,
                   .recovery_deadline_seconds = spec().policies.run.recovery_deadline_seconds,
                   .trains = attempt_open() && !agent.finished,
                   .short_since = st_.incomplete,
                   .no_place = true,
                   .missing = missing_workers().second,
                   .saved_step = agent.saved_step.value_or(0)};
  for (const Slot& slot : slots_) {
    const PodView* pod = slot.newest;
    const bool runs = pod && pod->phase == PodView::Phase::Running && !pod->deleting_from;
    seen.trains &= runs;
    if (pod && node_answers(*pod)) {
      ++seen.placed;
      seen.running += runs;
    } else {
      const bool homeless = pod && !pod->ended() && !pod->deleting_from && pod->node.empty() &&
                            !pod->unscheduled.empty();
      seen.no_place &= homeless || o_.refusal.has_value();
    }
  }
  for (const PodView* pod : pods_) {
    if (!is_spare(*pod)) continue;
    seen.spares_placed += node_answers(*pod);
    seen.spares_failed |= pod->ended();
  }
  seen.spares_failed |= o_.refusal.has_value();
  return seen;
}

/// Chooses the size. Returns true if it changed. The status is written before pods are created or
/// deleted: agent 0 saves when it reads the new revision, and the next pass replaces the gang.
bool Pass::resize() {
  if (!st_.elastic || attested()) return false;
  ElasticChoice choice = choose_size(seen_sizes(), *st_.elastic, now_);
  st_.elastic = std::move(choice.state);
  spares_ = choice.spares;
  if (choice.due) due(*choice.due);
  if (!choice.resized) return false;
  take_size(base_revision(st_.revision));
  group_pods();
  due(now_);
  return true;
}

/// Creates pods of the larger gang, which request nodes from the scheduler. If the gang grows they
/// become its workers, and their images are already pulled.
void Pass::make_spares() {
  if (!st_.elastic) return;
  const int size = spec().replicas, end = size + spares_;
  const std::string revision =
      sized_revision(base_revision(st_.revision), end, st_.elastic->resizes + 1);
  std::vector<int64_t> newest(static_cast<size_t>(spares_), 0);
  std::vector<bool> there(static_cast<size_t>(spares_), false);
  for (const PodView* pod : pods_) {
    const bool wanted = pod->worker >= size && pod->worker < end;
    if (wanted) {
      newest[pod->worker - size] = std::max(newest[pod->worker - size], pod->incarnation);
      there[pod->worker - size] = there[pod->worker - size] || !pod->ended();
    }
    if (is_spare(*pod) && !pod->ended() && (!wanted || pod->revision != revision)) remove(*pod);
  }
  if (spares_ == 0 || creating_) return;
  spare_revision_ = revision;
  const auto larger = sized(*force_, end, revision);
  for (Create& create : render_config(o_, *larger)) {
    const bool known =
        create.kind != "ConfigMap" || std::ranges::any_of(o_.children, [&](const ChildView& child) {
          return child.kind == create.kind && child.name == create.name &&
                 child.owner_uid == job().uid;
        });
    if (!known) plan_.creates.push_back(std::move(create));
  }
  choose_key();
  for (int worker = size; worker < end; ++worker) {
    if (there[worker - size]) continue;
    const int64_t incarnation = 1 + std::max(newest[worker - size], st_.incarnation);
    plan_.pods.push_back(render_pod(o_, *larger, st_, worker, incarnation, {}, key_));
  }
}

}  // namespace dsj::op
