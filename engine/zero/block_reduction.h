// A flat's gradient on its way to the ranks that own its shards, as codes of 4 bits (ZeRO++'s quantized
// gradients). A rank sends to each owner that owner's part as codes and scales; the owner sums the
// numbers that these stand for in fp32, in the order of the ranks.
//
// With groups of near ranks (hpZ's) there are two hops, as in DeepSpeed's all_to_all_quant_reduce.
// Within a group the ranks first sum what belongs to their own place in any group; that sum is coded
// again and goes to the owners in the other groups. So a number is coded once for each hop, and of a
// group's gradient one copy leaves it.
//
// GradientSum owns those in flight. Not thread-safe. All memory is counted as Buckets.
// Tested by: tests/engine/zero/blocks_on_the_wire_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/comm/collectives.h"
#include "engine/zero/groups.h"
#include "job/layout/partition.h"

namespace dsj::zero {

class BlockReduction {
 public:
  /// Codes `whole` [numel], which the caller may free then, and starts the first hop. `layout` is cut
  /// for the world by whole blocks; both references outlive it. Collective.
  BlockReduction(const layout::FlatLayout& layout, const at::Tensor& whole, const Groups& groups,
                 comm::Label label);
  /// Waits, does the second hop if there is one, and writes out [shard_numel]. Collective.
  void finish(const at::Tensor& out);

 private:
  /// The messages of one hop: one to and one from each rank of its group.
  struct Hop {
    comm::Collectives* group = nullptr;
    int64_t numel = 0;  ///< elements of a message
    at::Tensor sent, got;
    comm::WorkPtr work;
  };
  static Hop hop(comm::Collectives& group, int64_t numel, at::Device device);
  void start(Hop& hop) const;
  /// Waits, and frees what was sent.
  static void wait(Hop& hop);
  /// out [numel] = the sum of what came, which it frees.
  static void sum(Hop& hop, const at::Tensor& out);

  const layout::FlatLayout& layout_;
  comm::Collectives* const rail_;  ///< null: one hop
  const std::string unit_;
  const comm::Traffic traffic_;
  Hop first_;
};

}  // namespace dsj::zero
