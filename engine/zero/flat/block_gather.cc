#include "engine/zero/flat/block_gather.h"

#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/comm/blocks.h"

namespace dsj::zero {

using comm::blocks_of;
using wire::kWeightBits;

at::Tensor BlockGather::messages(int64_t ranks, at::Device device, memory::Class klass) const {
  memory::MemoryScope scope(klass);
  return at::zeros({ranks, wire::message_bytes(layout_.shard_numel(), kWeightBits)},
                   at::TensorOptions(device).dtype(at::kByte));
}

void BlockGather::code(const at::Tensor& numbers, int64_t first, const at::Tensor& message) const {
  memory::MemoryScope scope(memory::Class::Buckets);
  blocks_of(numbers).quantize(
      numbers.view({1, -1}), kWeightBits,
      comm::part_of(message, layout_.shard_numel(), kWeightBits, first, numbers.numel()));
}

at::Tensor BlockGather::message_of(const at::Tensor& shard) const {
  const at::Tensor message = messages(1, shard.device(), memory::Class::Parameters);
  code(shard, 0, message);
  return message;
}

at::Tensor BlockGather::own_message(const comm::Collectives& group, at::Device device) {
  DSJ_CHECK(!in_flight() && group.world() == layout_.world());
  messages_ = messages(group.world(), device, memory::Class::Buckets);
  return messages_.narrow(0, group.rank(), 1);
}

void BlockGather::start(comm::Collectives& group, const at::Tensor& own, comm::Label label) {
  if (!messages_.defined()) own_message(group, own.device());
  work_ = group.all_gather(messages_.view(-1).view(at::kLong), own.view(-1).view(at::kLong), label);
}

void BlockGather::start_of_shard(comm::Collectives& group, const at::Tensor& shard,
                                 comm::Label label) {
  const at::Tensor own = own_message(group, shard.device());
  code(shard, 0, own);
  start(group, own, label);
}

void BlockGather::start_of_slices(comm::Collectives& group, const at::Tensor& whole,
                                  comm::Label label) {
  const at::Tensor own = own_message(group, whole.device());
  for (const auto& chunk : layout_.chunks())
    code(whole.narrow(0, chunk.offset + group.rank() * chunk.slice, chunk.slice),
         chunk.shard_offset, own);
  start(group, own, label);
}

void BlockGather::finish(const at::Tensor& whole) {
  DSJ_CHECK(in_flight());
  work_->wait();
  work_.reset();
  memory::MemoryScope scope(memory::Class::Buckets);
  for (const auto& chunk : layout_.chunks())
    blocks_of(whole).dequantize(comm::part_of(messages_, layout_.shard_numel(), kWeightBits,
                                              chunk.shard_offset, chunk.slice),
                                kWeightBits,
                                whole.narrow(0, chunk.offset, chunk.numel).view({-1, chunk.slice}));
  messages_.reset();
}

}  // namespace dsj::zero
