// A flat's parameters on their way to all ranks as codes of 8 bits (ZeRO++'s quantized weights): each
// rank sends its shard as codes and scales, and every rank, the sender too, works with the numbers that
// these stand for. So all ranks have the same bits, and the bits do not depend on the number of ranks,
// because blocks begin with each parameter (job/wire_blocks.h).
//
// Flat owns one. Not thread-safe. Memory in flight is counted as Buckets.
// Tested by: tests/engine/zero/blocks_on_the_wire_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "job/layout/partition.h"

namespace dsj::zero {

class BlockGather {
 public:
  /// `layout` outlives it, and is cut for the group's ranks by whole blocks.
  explicit BlockGather(const layout::FlatLayout& layout) : layout_(layout) {}

  /// A shard [shard_numel] as a message [1, bytes], counted as Parameters.
  at::Tensor message_of(const at::Tensor& shard) const;
  /// Starts to gather messages of all ranks of `group`. Collective.
  void start(comm::Collectives& group, const at::Tensor& own, comm::Label label);
  /// The same from this rank's shard [shard_numel].
  void start_of_shard(comm::Collectives& group, const at::Tensor& shard, comm::Label label);
  /// The same from `whole` [numel], of which this rank's slices are filled.
  void start_of_slices(comm::Collectives& group, const at::Tensor& whole, comm::Label label);
  bool in_flight() const { return work_ != nullptr; }
  /// Waits, and writes all of `whole`.
  void finish(const at::Tensor& whole);

 private:
  at::Tensor messages(int64_t ranks, at::Device device, memory::Class klass) const;
  /// Codes numbers [n], which are the shard's from element `first` on, into a message.
  void code(const at::Tensor& numbers, int64_t first, const at::Tensor& message) const;
  /// This rank's message among messages_, which it makes.
  at::Tensor own_message(const comm::Collectives& group, at::Device device);

  const layout::FlatLayout& layout_;
  at::Tensor messages_;  ///< [ranks, bytes] while in flight
  comm::WorkPtr work_;
};

}  // namespace dsj::zero
