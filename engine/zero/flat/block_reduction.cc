#include "engine/zero/flat/block_reduction.h"

#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/comm/blocks.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::zero {

using comm::blocks_of;
using wire::kGradientBits;

BlockReduction::BlockReduction(const layout::FlatLayout& layout, const at::Tensor& whole,
                               const Groups& groups, comm::Label label)
    : layout_(layout), rail_(groups.rail), unit_(label.unit), traffic_(label.traffic) {
  comm::Collectives& near = rail_ ? *groups.near : *groups.shards;
  const int64_t places = near.world(), owners = layout.world() / places;
  const int64_t shard = layout.shard_numel();
  DSJ_CHECK(places * owners == layout.world() && owners == (rail_ ? rail_->world() : 1));
  memory::MemoryScope scope(memory::Class::Buckets);
  first_ = hop(near, owners * shard, whole.device());
  // The rank with index `place` gets the slices of all ranks with that index in their groups.
  for (const auto& chunk : layout.chunks()) {
    const at::Tensor slices =
        whole.narrow(0, chunk.offset, chunk.numel).view({owners, places, chunk.slice});
    for (int64_t owner = 0; owner < owners; ++owner)
      blocks_of(whole).quantize(slices.select(0, owner), kGradientBits,
                                comm::part_of(first_.sent, first_.numel, kGradientBits,
                                              owner * shard + chunk.shard_offset, chunk.slice));
  }
  start(first_);
}

BlockReduction::Hop BlockReduction::hop(comm::Collectives& group, int64_t numel,
                                        at::Device device) {
  const auto messages = [&] {
    return at::zeros({group.world(), wire::message_bytes(numel, kGradientBits)},
                     at::TensorOptions(device).dtype(at::kByte));
  };
  return {&group, numel, messages(), messages(), nullptr};
}

void BlockReduction::start(Hop& hop) const {
  hop.work = hop.group->all_to_all(hop.got.view(-1).view(at::kLong),
                                   hop.sent.view(-1).view(at::kLong), {traffic_, unit_});
}

void BlockReduction::wait(Hop& hop) {
  hop.work->wait();
  hop.work.reset();
  hop.sent.reset();
}

void BlockReduction::sum(Hop& hop, const at::Tensor& out) {
  blocks_of(out).sum(comm::part_of(hop.got, hop.numel, kGradientBits, 0, hop.numel), kGradientBits,
                     out);
  hop.got.reset();
}

void BlockReduction::finish(const at::Tensor& out) {
  memory::MemoryScope scope(memory::Class::Buckets);
  wait(first_);
  if (!rail_) return sum(first_, out);
  const int64_t shard = layout_.shard_numel(), owners = rail_->world();
  at::Tensor sums = at::empty({owners, shard}, out.options().dtype(at::kFloat));
  sum(first_, sums.view(-1));
  Hop second = hop(*rail_, shard, out.device());
  blocks_of(sums).quantize(sums, kGradientBits,
                           comm::part_of(second.sent, shard, kGradientBits, 0, shard));
  sums.reset();
  start(second);
  wait(second);
  sum(second, out);
}

}  // namespace dsj::zero
