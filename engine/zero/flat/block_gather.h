// Gathers a flat's parameters as 8-bit codes (ZeRO++'s quantized weights). Each rank sends its
// shard as codes and scales. All ranks, the sender included, use the dequantized numbers, so all
// have the same bits. Blocks start at each parameter (job/wire_blocks.h), so the bits do not depend
// on the number of ranks.
//
// Each Flat owns one. Not thread-safe. Memory in flight is counted as Buckets.
// Tested by: tests/engine/zero/blocks_on_the_wire_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "job/layout/partition.h"

namespace dsj::zero {

class BlockGather {
 public:
  /// `layout` must outlive this object. Its cut for the group's ranks must not split a block.
  explicit BlockGather(const layout::FlatLayout& layout) : layout_(layout) {}

  /// Encodes a shard [shard_numel] as a message [1, bytes], counted as Parameters.
  at::Tensor message_of(const at::Tensor& shard) const;
  /// Starts to gather messages of all ranks of `group`. Collective.
  void start(comm::Collectives& group, const at::Tensor& own, comm::Label label);
  /// The same; encodes this rank's shard [shard_numel] first.
  void start_of_shard(comm::Collectives& group, const at::Tensor& shard, comm::Label label);
  /// The same; encodes this rank's slices of `whole` [numel] first.
  void start_of_slices(comm::Collectives& group, const at::Tensor& whole, comm::Label label);
  bool in_flight() const { return work_ != nullptr; }
  /// Waits for the gather and decodes it into all of `whole`.
  void finish(const at::Tensor& whole);

 private:
  at::Tensor messages(int64_t ranks, at::Device device, memory::Class klass) const;
  /// Encodes `numbers` [n], elements [first, first + n) of the shard, into `message`.
  void code(const at::Tensor& numbers, int64_t first, const at::Tensor& message) const;
  /// Allocates messages_ and returns this rank's row.
  at::Tensor own_message(const comm::Collectives& group, at::Device device);

  const layout::FlatLayout& layout_;
  at::Tensor messages_;  ///< [ranks, bytes] while in flight
  comm::WorkPtr work_;
};

}  // namespace dsj::zero
