// The gradient of a flat: backward writes a micro-step's, and it is summed over micro-steps and ranks.
// Of a step's sum there is one tensor, and its state says whose sum it is:
//
//   None ── first micro-step ──> Own ── last micro-step's reduction ──> Reduced     stages 0, 1
//   None ── first micro-step's reduction ──> Reduced                                stages 2, 3
//
// Ranks are those among which the flat is cut. With MiCS other groups have the same shards: after the
// last reduction the sums of the groups become one (groups.h).
//
// With one rank, and where gradients stay local, the step ends with Own. clear() leads to None. Where
// the optimizer's states are offloaded from an accelerator, the sum lies in host memory between its
// uses (host_sum.h). Flat owns one. Not thread-safe. All memory is counted as Gradients or Buckets.
// Tested by: tests/engine/zero/flat_test.cc, tests/engine/simulated/step_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/averaging.h"
#include "engine/zero/block_reduction.h"
#include "engine/zero/groups.h"
#include "engine/zero/host_sum.h"
#include "engine/zero/row_gradients.h"
#include "job/layout/partition.h"
#include "job/layout/stage.h"

namespace dsj::zero {

struct GradientOptions {
  at::ScalarType compute = at::kFloat;        ///< of what backward writes
  at::ScalarType grad_accum = at::kFloat;     ///< of the sum over micro-steps
  at::ScalarType communication = at::kFloat;  ///< on the wire
  optim::Averaging averaging;                 ///< factors before and after reduction
  bool rows = false;                          ///< gradients travel as rows (row_gradients.h)
  bool codes = false;                         ///< they travel as codes (block_reduction.h)
  at::Device device = at::kCPU;
};

/// Where to write a gradient. `accumulate`: add to what is there, instead of overwriting it. `part`:
/// what is written is not the whole gradient yet; whoever asked rounds the sum (PieceSums).
struct GradView {
  at::Tensor tensor;
  bool accumulate = false;
  bool part = false;

  /// Before sums are added to it.
  void zero_if_new() const {
    if (tensor.defined() && !accumulate) tensor.zero_();
  }
};

class GradientSum {
 public:
  enum class State {
    None,     ///< nothing is summed
    Own,      ///< this rank's sum [numel]; no other rank's is in it
    Reduced,  ///< all ranks' sum: [numel], or this rank's shard of it
  };

  /// `layout` and `stage` outlive it; the stage may change between two steps. `rank`: this one's in
  /// the layout's world.
  GradientSum(const layout::FlatLayout& layout, const GradientOptions& options,
              const layout::Stage& stage, int rank, const Groups& groups);
  /// From now on the sum leaves the device between its uses.
  void keep_on_host(HostCopies& copies);

  /// Where backward writes the gradients of neighbours: in the compute type, stacked (parameters_of;
  /// undefined if they are none). The first call of a micro-step allocates the flat's gradient.
  GradView view(int first, int count);
  /// Starts bringing a sum that backward adds to back from host memory, if it lies there. (Else
  /// view() does it first.)
  void fetch();
  /// This micro-step's gradient is complete: adds it to the sum, or starts its reduction. `last`: this
  /// is the step's last micro-step. Collective when the stage says (Reduced).
  void reduce(bool last);
  /// Waits for the reduction in flight and adds its result to the sum. After the last micro-step's it
  /// starts the sum over the groups. Collective with MiCS.
  void finish_reduce();
  /// Waits for the sum over the groups, if it was started.
  void finish_groups();
  /// From now on gradients are reduced nowhere; stages 0 and 1. Call it between two steps.
  void keep_local(bool local) { local_ = local; }
  void clear();

  State state() const { return state_; }
  /// The sum of the step, in grad_accum, wherever it lies. In host memory: the host waits for it.
  /// Undefined: None.
  at::Tensor value() const;
  /// Whether value() is [numel], not a shard.
  bool whole() const { return state_ == State::Own || !stage_.shards_update(); }
  /// Adds the squares of value() to sum [] (double, on the device).
  void add_squares(const at::Tensor& sum) const;
  /// [slot]: whether this rank's part of value() has an infinity or a NaN.
  std::vector<bool> bad() const;

 private:
  /// Whether backward writes to a tensor of its own, not to the sum.
  bool writes_apart() const;
  at::Tensor& written_to();
  void add_fresh();
  void start_reduce(at::Tensor source, bool last);
  void add_reduced(at::Tensor out);
  /// Starts bringing the sum back from host memory, if it lies there.
  void fetch_sum();
  /// The current lane waits for what was fetched.
  void sum_arrived();
  /// The sum leaves the device, if the states did. `last`: it is complete.
  void send_sum(bool last);
  at::Tensor make(int64_t numel, at::ScalarType type, memory::Class klass) const;

  struct Reduction {
    std::vector<comm::WorkPtr> works;
    std::unique_ptr<RowGradients> rows;   ///< it goes by rows
    std::optional<BlockReduction> codes;  ///< it goes as codes
    at::Tensor out;                       ///< [numel] or [shard], communication
    bool last = false;                    ///< of the last micro-step
  };

  const layout::FlatLayout& layout_;
  const GradientOptions options_;
  const layout::Stage& stage_;
  const int rank_;
  const Groups groups_;

  State state_ = State::None;
  at::Tensor sum_;             ///< grad_accum, as state_ says; undefined: None, or in host memory
  at::Tensor fresh_;           ///< [numel] compute: this micro-step's, if it is written apart
  std::vector<bool> written_;  ///< [slot]: backward has written it since its tensor was made
  bool local_ = false;
  std::optional<Reduction> reduction_;
  comm::WorkPtr over_groups_;
  std::unique_ptr<HostSum> away_;  ///< the sum leaves the device
  at::Tensor squares_;             ///< [] double, on the device: of the sum that has left
};

}  // namespace dsj::zero
