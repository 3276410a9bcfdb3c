// Muon (methods.h).
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "common/check.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/methods/methods.h"
#include "engine/zero/methods/newton_schulz.h"
#include "job/plan/muon_plan.h"

namespace dsj::zero {
namespace {

using layout::Slot;

/// The cost of one iteration, proportional to its multiplications.
double work_of(const Slot& slot) {
  const auto n = static_cast<double>(std::ranges::min(slot.shape));
  return n * n * static_cast<double>(slot.numel);
}

class Muon final : public UpdateMethod {
 public:
  explicit Muon(const UpdateTarget& target) : UpdateMethod(target) {
    std::vector<double> loads(static_cast<size_t>(target_.collectives.world()), 0);
    for (const Flat* flat : target_.trained()) {
      if (!plan::is_orthogonalised(flat->layout(), target_.config)) continue;
      std::vector<int>& owners = owners_[flat];
      for (const Slot& slot : flat->layout().slots()) {
        DSJ_CHECK(slot.shape.size() == 2, "%s is not a matrix", slot.name.c_str());
        const auto least = std::ranges::min_element(loads);
        *least += work_of(slot);
        owners.push_back(static_cast<int>(least - loads.begin()));
      }
    }
  }

  void step(const StepNumbers& n) override {
    for (Flat* flat : target_.trained()) {
      if (owners_.contains(flat))
        step(*flat, n);
      else
        flat->step(rule_of(n));  // AdamW
    }
  }

 private:
  void step(Flat& flat, const StepNumbers& n);
  /// Writes this rank's slices of the owners' results in whole [numel], which is 0 elsewhere.
  void scatter(const Flat& flat, const at::Tensor& whole);

  /// [slot] for each flat of matrices: the rank that orthogonalises it. The work is balanced.
  std::map<const Flat*, std::vector<int>> owners_;
};

void Muon::scatter(const Flat& flat, const at::Tensor& whole) {
  const at::Tensor own = at::empty({flat.layout().shard_numel()}, whole.options());
  target_.collectives
      .reduce_scatter(scatter_pairs(flat.layout(), own, whole), comm::Op::Sum,
                      {comm::Traffic::Moments, flat.layout().name()})
      ->wait();
  for (const auto& chunk : flat.layout().chunks())
    whole.narrow(0, chunk.offset + target_.collectives.rank() * chunk.slice, chunk.slice)
        .copy_(own.narrow(0, chunk.shard_offset, chunk.slice));
}

void Muon::step(Flat& flat, const StepNumbers& n) {
  const double lr = n.rates.lr, beta = target_.config.optimizer.momentum;
  const double decay = target_.config.optimizer.weight_decay;
  const dsconfig::MuonConfig& iteration = target_.config.muon;
  memory::MemoryScope scope(memory::Class::Buckets);
  const auto& slots = flat.layout().slots();
  const bool sharded = flat.layout().world() > 1;
  const at::Tensor whole =
      at::zeros({flat.layout().numel()}, at::TensorOptions(flat.device()).dtype(at::kFloat));
  const auto part = [&](int slot, int64_t offset, const at::Tensor& like) {
    return whole.narrow(0, slots[static_cast<size_t>(slot)].offset + offset, like.numel());
  };
  // Each operation on stored state rounds by itself, so that every CPU gives the same bits for any
  // cut of the runs.
  flat.for_owned(false, [&](int slot, int64_t offset, const UpdateSpan& span) {
    const at::Tensor u = part(slot, offset, span.p), &momentum = span.states[0];
    u.copy_(span.grad).mul_(n.grad_scale).mul_(1 - beta);
    momentum.mul_(beta).add_(u.to(momentum.device()));
    u.add_(momentum.to(u.device()), beta);
  });
  if (sharded)
    target_.collectives
        .all_gather(gather_pairs(flat.layout(), whole, target_.collectives.rank()),
                    {comm::Traffic::Moments, flat.layout().name()})
        ->wait();
  const std::vector<int>& owners = owners_.at(&flat);
  for (size_t i = 0; i < slots.size(); ++i) {
    const at::Tensor matrix = whole.narrow(0, slots[i].offset, slots[i].numel).view(slots[i].shape);
    if (sharded && owners[i] != target_.collectives.rank())
      matrix.zero_();
    else
      matrix.copy_(
          orthogonalised(matrix, iteration.ns_method, static_cast<int>(iteration.ns_steps)));
  }
  if (sharded) scatter(flat, whole);
  whole.mul_(lr);
  flat.for_owned(true, [&](int slot, int64_t offset, const UpdateSpan& span) {
    const at::Tensor move = part(slot, offset, span.p).to(span.p.device());
    at::Tensor(span.p).mul_(1 - lr * decay).sub_(move);
    if (span.low.defined()) at::Tensor(span.low).copy_(span.p);
  });
}

}  // namespace

std::unique_ptr<UpdateMethod> make_muon(const UpdateTarget& target) {
  return std::make_unique<Muon>(target);
}

}  // namespace dsj::zero
