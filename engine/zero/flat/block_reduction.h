// Reduces a flat's gradient as 4-bit codes (ZeRO++'s quantized gradients) to the ranks that own its
// shards. A rank sends each owner its shard as codes and scales. The owner sums the dequantized
// numbers in fp32, in rank order.
//
// With groups of near ranks (hpZ) there are two hops, as in DeepSpeed's all_to_all_quant_reduce. In
// the first hop each rank of a group sums the shards of all owners with its own index in their
// group. The sum is encoded again and sent to these owners in the other groups. So a number is
// quantized once per hop, and only one copy of a group's gradient leaves the group.
//
// GradientSum owns the reductions in flight. Not thread-safe. All memory is counted as Buckets.
// Tested by: tests/engine/zero/blocks_on_the_wire_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/comm/collectives.h"
#include "engine/zero/flat/groups.h"
#include "job/layout/partition.h"

namespace dsj::zero {

class BlockReduction {
 public:
  /// Encodes `whole` [numel] and starts the first hop. The caller may free `whole` afterwards.
  /// `layout`, whose cut splits no block, and `groups` must outlive it. Collective.
  BlockReduction(const layout::FlatLayout& layout, const at::Tensor& whole, const Groups& groups,
                 comm::Label label);
  /// Waits, runs a second hop if needed, and writes out [shard_numel]. Collective.
  void finish(const at::Tensor& out);

 private:
  /// The messages of one hop: one to and one from each rank of the group.
  struct Hop {
    comm::Collectives* group = nullptr;
    int64_t numel = 0;  ///< elements per message
    at::Tensor sent, got;
    comm::WorkPtr work;
  };
  static Hop hop(comm::Collectives& group, int64_t numel, at::Device device);
  void start(Hop& hop) const;
  /// Waits, and frees the sent messages.
  static void wait(Hop& hop);
  /// out [numel] = the sum of the received messages, which it frees.
  static void sum(Hop& hop, const at::Tensor& out);

  const layout::FlatLayout& layout_;
  comm::Collectives* const rail_;  ///< null if there is one hop
  const std::string unit_;
  const comm::Traffic traffic_;
  Hop first_;
};

}  // namespace dsj::zero
