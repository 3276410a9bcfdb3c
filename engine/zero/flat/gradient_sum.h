// The gradient of a flat. Backward writes one micro-step's gradient; this class sums over
// micro-steps and ranks. A step's sum is one tensor. Its state says which ranks the sum covers:
//
//   None ── first micro-step ──> Own ── last micro-step's reduction ──> Reduced     stages 0, 1
//   None ── first micro-step's reduction ──> Reduced                                stages 2, 3
//
// "All ranks" are the ranks among which the flat is cut. With MiCS other groups have the same
// shards: after the last reduction their sums are added up over the groups (groups.h).
//
// With one rank, and if gradients stay local, the step ends in Own. clear() leads to None. If the
// optimizer's states are offloaded from an accelerator, the sum is in host memory between its uses
// (host_sum.h). Each Flat owns one. Not thread-safe. Memory is counted as Gradients or Buckets.
// Tested by: tests/engine/zero/flat/flat_test.cc, tests/engine/simulated/step_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/averaging.h"
#include "engine/zero/flat/block_reduction.h"
#include "engine/zero/flat/groups.h"
#include "engine/zero/flat/host_sum.h"
#include "engine/zero/flat/row_gradients.h"
#include "job/layout/partition.h"
#include "job/layout/stage.h"

namespace dsj::zero {

struct GradientOptions {
  at::ScalarType compute = at::kFloat;        ///< type that backward writes
  at::ScalarType grad_accum = at::kFloat;     ///< type of the sum over micro-steps
  at::ScalarType communication = at::kFloat;  ///< type on the wire
  optim::Averaging averaging;                 ///< factors before and after reduction
  bool rows = false;                          ///< gradients travel as rows (row_gradients.h)
  bool codes = false;                         ///< gradients travel as codes (block_reduction.h)
  at::Device device = at::kCPU;
};

/// Where to write a gradient. `accumulate`: add to the tensor instead of overwriting it. `part`:
/// the writes are a part of the gradient; the caller rounds the sum of the parts (PieceSums).
struct GradView {
  at::Tensor tensor;
  bool accumulate = false;
  bool part = false;

  /// Call it before adding sums to the tensor.
  void zero_if_new() const {
    if (tensor.defined() && !accumulate) tensor.zero_();
  }
};

class GradientSum {
 public:
  enum class State {
    None,     ///< nothing is summed
    Own,      ///< this rank's sum [numel], without other ranks
    Reduced,  ///< the sum over all ranks: [numel], or this rank's shard
  };

  /// `layout` and `stage` must outlive it; the stage may change between two steps. `rank`: this
  /// rank in the layout's world.
  GradientSum(const layout::FlatLayout& layout, const GradientOptions& options,
              const layout::Stage& stage, int rank, const Groups& groups);
  /// From now on the sum is moved to host memory between its uses.
  void keep_on_host(HostCopies& copies);

  /// Where backward writes the gradients of `count` neighbours: compute type, stacked
  /// (parameters_of); undefined if they are not neighbours. A micro-step's first call allocates it.
  GradView view(int first, int count);
  /// Starts to copy the sum back from host memory, if backward adds to it and it is there.
  /// Optional: view() does it otherwise.
  void fetch();
  /// Adds this micro-step's complete gradient to the sum, or starts its reduction. `last`: this is
  /// the step's last micro-step. Collective if the stage says so (Reduced).
  void reduce(bool last);
  /// Waits for the reduction in flight and adds its result to the sum. After the last micro-step it
  /// starts the sum over the groups, which is collective with MiCS.
  void finish_reduce();
  /// Waits for the sum over the groups, if it was started.
  void finish_groups();
  /// If true, gradients are no longer reduced; stages 0 and 1. Call it between two steps.
  void keep_local(bool local) { local_ = local; }
  void clear();

  State state() const { return state_; }
  /// The sum of the step in the grad_accum type; undefined in state None. If it is in host memory,
  /// the host waits for it.
  at::Tensor value() const;
  /// Whether value() is [numel], not a shard.
  bool whole() const { return state_ == State::Own || !stage_.shards_update(); }
  /// Adds the squares of value() to sum [] (double, on the device).
  void add_squares(const at::Tensor& sum) const;
  /// [slot]: whether this rank's part of value() contains infinity or NaN.
  std::vector<bool> bad() const;

 private:
  /// Whether backward writes to a separate tensor, not to the sum.
  bool writes_apart() const;
  at::Tensor& written_to();
  void add_fresh();
  void start_reduce(at::Tensor source, bool last);
  void add_reduced(at::Tensor out);
  /// Starts to copy the sum back from host memory, if it is there.
  void fetch_sum();
  /// Makes the current lane wait for fetch_sum().
  void sum_arrived();
  /// Moves the sum to host memory if the states are offloaded. `last`: the sum is complete.
  void send_sum(bool last);
  at::Tensor make(int64_t numel, at::ScalarType type, memory::Class klass) const;

  struct Reduction {
    std::vector<comm::WorkPtr> works;
    std::unique_ptr<RowGradients> rows;   ///< set if it is sent by rows
    std::optional<BlockReduction> codes;  ///< set if it is sent as codes
    at::Tensor out;                       ///< [numel] or [shard], communication type
    bool last = false;                    ///< of the last micro-step
  };

  const layout::FlatLayout& layout_;
  const GradientOptions options_;
  const layout::Stage& stage_;
  const int rank_;
  const Groups groups_;

  State state_ = State::None;
  at::Tensor sum_;             ///< grad_accum type; undefined in None and in host memory
  at::Tensor fresh_;           ///< [numel] compute: a separate micro-step gradient
  std::vector<bool> written_;  ///< [slot]: backward wrote it since its allocation
  bool local_ = false;
  std::optional<Reduction> reduction_;
  comm::WorkPtr over_groups_;
  std::unique_ptr<HostSum> away_;  ///< set if the sum leaves the device
  at::Tensor squares_;             ///< [] double, on the device: of the sum in host memory
};

}  // namespace dsj::zero
