#include "engine/zero/muon.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "engine/memory/counting_allocator.h"
#include "engine/zero/newton_schulz.h"

namespace dsj::zero {
namespace {

using layout::Slot;

/// Multiplications of an iteration, in proportion.
double work_of(const Slot& slot) {
  const auto n = static_cast<double>(std::ranges::min(slot.shape));
  return n * n * static_cast<double>(slot.numel);
}

}  // namespace

Muon::Muon(const std::vector<Flat*>& flats, comm::Collectives& collectives)
    : collectives_(collectives) {
  std::vector<double> loads(static_cast<size_t>(collectives.world()), 0);
  for (const Flat* flat : flats) {
    std::vector<int>& owners = owners_[flat];
    for (const Slot& slot : flat->layout().slots()) {
      DSJ_CHECK(slot.shape.size() == 2, "%s is no matrix", slot.name.c_str());
      const auto least = std::ranges::min_element(loads);
      *least += work_of(slot);
      owners.push_back(static_cast<int>(least - loads.begin()));
    }
  }
}

void Muon::gather(const Flat& flat, const at::Tensor& whole) {
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : flat.layout().chunks())
    pairs.push_back(
        {whole.narrow(0, chunk.offset, chunk.numel),
         whole.narrow(0, chunk.offset + collectives_.rank() * chunk.slice, chunk.slice)});
  collectives_.all_gather(pairs, {comm::Traffic::Moments, flat.layout().name()})->wait();
}

void Muon::scatter(const Flat& flat, const at::Tensor& whole) {
  const at::Tensor own = at::empty({flat.layout().shard_numel()}, whole.options());
  std::vector<comm::ChunkPair> pairs;
  for (const auto& chunk : flat.layout().chunks())
    pairs.push_back({own.narrow(0, chunk.shard_offset, chunk.slice),
                     whole.narrow(0, chunk.offset, chunk.numel)});
  collectives_.reduce_scatter(pairs, comm::Op::Sum, {comm::Traffic::Moments, flat.layout().name()})
      ->wait();
  for (const auto& chunk : flat.layout().chunks())
    whole.narrow(0, chunk.offset + collectives_.rank() * chunk.slice, chunk.slice)
        .copy_(own.narrow(0, chunk.shard_offset, chunk.slice));
}

void Muon::step(Flat& flat, const optim::MatrixUpdate& update) {
  memory::MemoryScope scope(memory::Class::Buckets);
  const auto& slots = flat.layout().slots();
  const bool sharded = flat.layout().world() > 1;
  const at::Tensor whole =
      at::zeros({flat.layout().numel()}, at::TensorOptions(flat.device()).dtype(at::kFloat));
  const auto part = [&](int slot, int64_t offset, const at::Tensor& like) {
    return whole.narrow(0, slots[static_cast<size_t>(slot)].offset + offset, like.numel());
  };
  // Each operation on what is kept rounds by itself, so that every CPU has the same bits, however
  // the runs are cut.
  flat.for_owned(false, [&](int slot, int64_t offset, const UpdateSpan& span) {
    const at::Tensor u = part(slot, offset, span.p), &momentum = span.states[0];
    u.copy_(span.grad).mul_(update.grad_scale).mul_(1 - update.momentum);
    momentum.mul_(update.momentum).add_(u.to(momentum.device()));
    u.add_(momentum.to(u.device()), update.momentum);
  });
  if (sharded) gather(flat, whole);
  const std::vector<int>& owners = owners_.at(&flat);
  for (size_t i = 0; i < slots.size(); ++i) {
    const at::Tensor matrix = whole.narrow(0, slots[i].offset, slots[i].numel).view(slots[i].shape);
    if (sharded && owners[i] != collectives_.rank())
      matrix.zero_();
    else
      matrix.copy_(orthogonalised(matrix, update.method, update.steps));
  }
  if (sharded) scatter(flat, whole);
  whole.mul_(update.lr);
  flat.for_owned(true, [&](int slot, int64_t offset, const UpdateSpan& span) {
    const at::Tensor move = part(slot, offset, span.p).to(span.p.device());
    at::Tensor(span.p).mul_(1 - update.lr * update.weight_decay).sub_(move);
    if (span.low.defined()) at::Tensor(span.low).copy_(span.p);
  });
}

}  // namespace dsj::zero
