// One flat of parameters with everything ZeRO keeps for it on this rank: working copy, fp32 master,
// gradient, optimizer states.
//
//   stage              0          1, 2, and persisted    3
//   working copy       whole      whole                  whole only while gathered; else its shard
//   gradient           whole      1: whole; 2: shard     shard (whole between backward and
//   reduction) master, states     whole      shard                  shard
//
// A frozen flat (LoRA) has the working copy only: loaded once in the compute type, at stage 3 as a
// shard that is gathered from.
//
// In fp32 the master of a whole working copy is that copy's own slices, and the shard a gather
// reads is the master: nothing is held twice. Shard, master and states lie where offload puts them
// (owned_state.h). All memory is tagged by class. Not thread-safe; collective calls say so; what
// touches offloaded state may throw StorageError.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/layout/partition.h"
#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"
#include "engine/optim/averaging.h"
#include "engine/optim/optimizer.h"
#include "engine/zero/owned_state.h"
#include "engine/zero/update.h"

namespace dsj::zero {

struct FlatOptions {
  int stage = 0;
  bool keep_whole = false;                    ///< stage 3: the persisted flat
  at::ScalarType compute = at::kFloat;        ///< working copy and whole gradient
  at::ScalarType grad_accum = at::kFloat;     ///< sum over micro-steps
  at::ScalarType communication = at::kFloat;  ///< gradients on the wire
  optim::Averaging averaging;                 ///< factors before and after the wire
  at::Device device = at::kCPU;
  std::vector<optim::StateSpec> states = {};  ///< what the optimizer keeps
  bool separate_master = false;               ///< the first vector of `optimizer` is the master
  ShardStoreOptions optimizer = {}, parameters = {};  ///< where what this rank owns lies
};

/// A gradient to write: `accumulate` says whether what is there counts.
struct GradView {
  at::Tensor tensor;
  bool accumulate = false;
};

class Flat {
 public:
  Flat(const layout::FlatLayout& layout, const FlatOptions& options,
       comm::Collectives& collectives);

  const layout::FlatLayout& layout() const { return layout_; }
  at::Device device() const { return options_.device; }
  bool frozen() const { return layout_.frozen(); }
  bool sharded_parameters() const { return options_.stage == 3 && !options_.keep_whole; }
  /// The tiles that a gather reads, in order: none unless the shard lies in a file.
  std::vector<int> gather_tiles() const { return owned_.parameter_tiles(); }

  // ---- parameters
  /// Frozen flats: what this rank owns, from `read(parameter, first element, values)`, rounded to
  /// the compute type; then the ranks' parts are put together. Collective where parts are whole.
  using Read = std::function<Status(const std::string&, int64_t, std::span<float>)>;
  Status fill_frozen(const Read& read);
  /// Starts the gather of the working copy. Collective: all ranks. Stage 3 flats, or after an
  /// update.
  void start_gather();
  /// Waits for the gather under way, if any.
  void finish_gather();
  /// Frees the gathered copy (sharded flats only). No view may be in use.
  void release();
  bool gathered() const { return working_.defined(); }
  /// The working copy of one parameter, in its shape; of `count` neighbours stacked on the first
  /// dimension (undefined if padding lies between them). Valid until release().
  at::Tensor weight(int slot) const;
  at::Tensor stacked_weight(int slot, int count) const;

  // ---- gradients
  /// Where backward writes the gradient of a parameter; allocated at the first call of a
  /// micro-step.
  GradView grad(int slot);
  GradView stacked_grad(int slot, int count);
  /// The gradient of this micro-step is complete: keeps it, or starts its reduction. `last`: the
  /// step's last micro-step. Collective on stages 2, 3, and on `last` for 0, 1.
  void reduce(bool last);
  /// Waits for the reduction under way, and adds it to the shard.
  void finish_reduce();

  // ---- update
  /// Sum of squares of the reduced gradient this rank owns (sum over ranks, not mean); stage 0: of
  /// all of it.
  double grad_sum_of_squares() const;
  /// By slot: whether what this rank owns of its reduced gradient has an infinity or a NaN.
  std::vector<bool> bad_gradients() const;
  /// LAMB's first pass over the owned elements: updates the moments and adds each parameter's sums
  /// to `sums` ([slot]).
  void lamb_moments(const optim::Update& update, std::span<LambSums> sums);
  /// Applies the optimizer to the owned elements; `update.grad_scale` carries 1/world and clipping.
  /// `coefficients`: LAMB's, [slot]; empty for the others.
  void step(const optim::Update& update, std::span<const double> coefficients = {});
  /// Forgets the gradient: the next micro-step starts from nothing.
  void clear_grad();

  // ---- state
  /// What this flat keeps for its owned elements, by index: the fp32 master, then the optimizer's
  /// states in their order.
  static constexpr int kMaster = 0;
  int state_count() const { return 1 + static_cast<int>(options_.states.size()); }
  const std::string& state_name(int state) const;
  /// A run of one parameter's state in host memory.
  struct HostRange {
    std::string parameter;
    int64_t offset = 0;  ///< elements of the parameter
    std::span<float> data;
  };
  using VisitState = std::function<Status(int state, const HostRange&)>;
  /// Calls `visit` for every run that this rank owns of every state, in host memory that is its for
  /// the call only: a tile at a time where the state is in a file. The ranks' runs do not overlap
  /// (stage 0 deals the whole among them). Stops at the first error and returns it.
  Status save_state(const VisitState& visit);
  /// The same for what `visit` writes: the master, or (`all`) the optimizer's states too; at stage
  /// 0 every rank's runs are the whole.
  Status load_state(bool all, const VisitState& visit);
  /// After the master was written: refreshes the working copy. Collective: all ranks, stages 1-3.
  void publish_master();

 private:
  /// A run of owned elements: in the whole flat, and in shard storage.
  struct Span {
    int64_t flat_offset, shard_offset, numel;
  };
  at::Tensor gradient() const;
  bool gradient_by_flat_offset() const { return options_.stage == 0; }
  /// The part of a run that lies in `span`; nullopt: none.
  static std::optional<Span> overlap(const Span& span, const OwnedRun& run);
  /// fp32 values of a span of a run, wherever they are.
  at::Tensor master(const Span& span, const OwnedRun& run) const;
  /// Calls f(slot, UpdateSpan) for runs of the owned elements; `by_slot`: of one parameter each,
  /// else slot is -1; `applies`: f writes the parameters too. Tensors of other places travel to
  /// where the states are, and back.
  void update_runs(bool by_slot, bool applies,
                   const std::function<void(int, const UpdateSpan&)>& f);
  Status visit_state(const std::vector<layout::Range>& ranges, Access access, bool all,
                     const VisitState& visit);
  /// Copies this rank's shard into its slices of the working copy, which a gather then spreads.
  void fill_own_slices();
  at::Tensor at_slot(const at::Tensor& whole, int slot) const;
  bool contiguous(int slot, int count) const;
  void ensure_grad();
  at::Tensor make(int64_t numel, at::ScalarType type, memory::Class klass) const;

  const layout::FlatLayout layout_;
  const FlatOptions options_;
  comm::Collectives& collectives_;
  std::vector<Span> spans_;
  int owner_ = 0;  ///< this rank's index in the layout's world (0 when nothing is sharded)

  at::Tensor working_;  ///< [numel] compute
  OwnedState owned_;
  at::Tensor grad_;        ///< [numel] compute: this micro-step's, or the sum (stages 0, 1)
  at::Tensor grad_whole_;  ///< [numel] grad_accum: the sum of stages 0, 1 when its type is another
  at::Tensor grad_shard_;  ///< [shard] grad_accum: the reduced sum
  std::vector<bool> written_;  ///< by slot: this gradient was written before
  comm::WorkPtr gather_;
  std::vector<comm::WorkPtr> reduce_;
  at::Tensor reduce_out_;  ///< [shard] communication: the reduction under way
};

}  // namespace dsj::zero
