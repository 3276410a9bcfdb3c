// A model's parameters under ZeRO: the flats, and the collective steps over all of them. The
// trainer walks the schedule and calls ModelState. Units (engine/models) use only UnitParameters.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "engine/checkpoint/saved_run.h"
#include "engine/checkpoint/writer.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/flat/flat.h"
#include "engine/zero/flat/groups.h"
#include "engine/zero/flat/piece_sums.h"
#include "engine/zero/methods/update_method.h"
#include "engine/zero/run_ahead.h"
#include "engine/zero/storage/host_copies.h"
#include "engine/zero/storage/offload_tier.h"
#include "job/dsconfig/config/resolved.h"
#include "job/layout/lora.h"
#include "job/layout/partition.h"
#include "job/layout/schedule.h"

namespace dsj::zero {

class ModelState;

/// A unit's parameters as its forward and backward use them, by their index in its UnitSpec.
class UnitParameters {
 public:
  UnitParameters(ModelState& state, int unit) : state_(&state), unit_(unit) {}
  /// A view of the gathered working copy, in the parameter's shape and its flat's type
  /// (plan::types_of_flat); for a packed weight (QLoRA) a copy in the products' type, unpacked by
  /// this call. Use it only for the next product.
  at::Tensor weight(int parameter) const;
  /// `count` neighbours stacked on dimension 0 without a copy. Undefined if they are not neighbours
  /// in one flat.
  at::Tensor stacked_weight(int parameter, int count) const;
  /// [numel] fp32, of the unit's buffers (layout::UnitSpec).
  at::Tensor buffer(int index) const;
  /// The type of inputs of matrix products, and the type of everything else that a unit reads or
  /// passes on. They differ only under torch_autocast.
  at::ScalarType product_type() const;
  at::ScalarType stream_type() const;
  /// Whether the parameter has a gradient. False if it is frozen.
  bool trained(int parameter) const;
  /// Where to write the gradient. The tensor is undefined if the parameter is frozen.
  GradView grad(int parameter) const;
  GradView stacked_grad(int parameter, int count) const;
  /// The adapter of a weight, as indices of this unit's parameters; nullptr if it has none.
  const layout::Adapter* adapter(int weight) const;
  /// The adapters' arguments. Call it only if there is an adapter.
  const LoraArgs& lora() const;
  /// The same unit, but its gradients are added to `sums`, which must outlive it.
  UnitParameters adding_to(PieceSums& sums) const {
    UnitParameters same = *this;
    same.sums_ = &sums;
    return same;
  }
  /// The embedding's weight and gradient, for a tied head.
  UnitParameters embedding() const { return {*state_, 0}; }

 private:
  bool one_flat(int parameter, int count) const;
  /// Where a piece writes `grad`, if this unit sums pieces.
  GradView in_sums(int parameter, int count, const GradView& grad) const;
  ModelState* state_;
  int unit_;
  PieceSums* sums_ = nullptr;
};

/// Where the initial values of adapters and of modules_to_save come from.
struct AdapterStart {
  uint64_t seed = 0;                             ///< of new adapters (initial_adapter.h)
  const weights::WeightSource* saved = nullptr;  ///< or a saved adapter in PEFT's layout
};

class ModelState {
 public:
  /// `groups`: made with the config's sizes (plan::rank_groups). `lora`: resolved (layout/lora.h);
  /// if unset, every parameter is trained. References and groups must outlive this object. Throws
  /// StorageError if there is no space for offloaded state.
  ModelState(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
             at::Device device, const Groups& groups, const std::optional<LoraArgs>& lora = {},
             const OffloadHost& host = {});

  const std::vector<layout::UnitSpec>& units() const { return units_; }
  const layout::FlatPlan& plan() const { return plan_; }
  Flat& flat(int index) { return *flats_[index]; }
  UnitParameters unit(int index) { return {*this, index}; }

  // The three functions that read files are collective. All ranks return the same verdict: on
  // success each rank's part is published; on an error nothing is, and the error is that of the
  // rank that could not read. Each rank reads only its own bytes.
  /// Reads the masters from a Hugging Face directory. Errors: a tensor is missing or has another
  /// shape, or a read failed.
  Status load(const weights::WeightSource& source, const AdapterStart& adapters = {});
  /// Loads only the frozen parameters and the buffers. Call it before restore(), which loads the
  /// trained ones.
  Status load_frozen(const weights::WeightSource& source);

  // ---- a step, called in schedule order
  /// Sets the flats that every step gathers, in order. Parameters on NVMe are read ahead so.
  void set_gathers(const std::vector<int>& flats);
  /// Sets the flats that every micro-step reduces, in order. A gradient in host memory is fetched
  /// while the previous one is computed.
  void set_reductions(std::vector<int> flats) { reductions_ = std::move(flats); }
  /// Call it before a step: starts to read ahead.
  void begin_step();
  /// Waits until the device is at most a layer behind (run_ahead.h), then starts the gather.
  void gather(int flat) {
    run_ahead_.before_gather();
    flats_[flat]->start_gather();
  }
  void release(int flat) {
    flats_[flat]->release();
    run_ahead_.released();
  }
  /// Waits until the flats of a unit are gathered.
  void wait_for(int unit);
  /// Starts a flat's reduction. At most two are in flight with overlap_comm, else one at a time.
  void reduce(int flat, bool last);
  void finish_reductions();
  /// This rank's part of the squared gradient norm, [] double on the device; the sum over ranks is
  /// the squared norm. If several ranks have a gradient, only the first counts it. Of local
  /// gradients each rank counts its own. The order of addition is fixed.
  at::Tensor owned_sum_of_squares() const;
  /// The first parameter, in the order of backward (head to embedding), whose reduced gradient
  /// contains infinity or NaN; empty if all are finite. Reads every gradient: call it only for a
  /// skipped step. Collective.
  std::string first_bad_gradient();
  /// Updates every owned element by the optimizer's method and starts the gathers of whole copies,
  /// which wait_for() finishes. Collective.
  void step(const StepNumbers& numbers) { method_->step(numbers); }
  const UpdateMethod& update_method() const { return *method_; }
  void clear_grad();
  /// Sets whether gradients stay on their ranks, unreduced (GradientSum::keep_local).
  /// owned_sum_of_squares is then of the rank's own gradient. Call it between steps, on all ranks.
  void keep_gradients_local(bool local);
  bool gradients_are_local() const { return local_; }

  // ---- state
  /// Passes this rank's pieces of a checkpoint to `emit`; state that several ranks have comes from
  /// the first. A piece is valid during the call; `stays`: longer (checkpoint/writer.h).
  Status for_pieces(const checkpoint::EmitPiece& emit);
  /// Every state of every trained parameter: the union of the pieces of all ranks.
  std::vector<checkpoint::Extent> extents() const;
  /// The first trained parameter, in the order of forward, whose master contains infinity or NaN;
  /// empty if all are finite. Reads every master. Collective.
  std::string first_bad_weight();
  /// The first frozen parameter whose values, as read and in their stored type, contain infinity or
  /// NaN; empty if all are finite. Collective.
  std::string first_bad_frozen_weight();
  /// Reads every owned range of the trained parameters. BadInput: the checkpoint lacks a state or
  /// has another size. Environment: it is damaged (checkpoint/saved_run.h); the caller may restore
  /// another one. Collective, same verdict on all ranks.
  Status restore(checkpoint::SavedRun& saved);
  /// Gathers one flat at a time. Rank 0 calls visit(slot, whole tensor on the host, compute type)
  /// for each parameter. `trained_only`: skips frozen flats. Collective. For exports
  /// and tests.
  void visit_weights(const std::function<void(const layout::Slot&, const at::Tensor&)>& visit,
                     bool trained_only = false);

  /// All ranks.
  comm::Collectives& collectives() { return *groups_.world; }
  const Groups& groups() const { return groups_; }

 private:
  friend class UnitParameters;
  /// The first of `names` that is in `bad` on any rank; empty if none is. Collective.
  std::string first_of(const std::vector<std::string>& names, const std::set<std::string>& bad);
  Status read_buffers(const weights::WeightSource& source);
  Status read_frozen(const weights::WeightSource& source);
  Status read_trained(const weights::WeightSource& source, const AdapterStart& adapters);
  /// The weight whose rows' lengths a magnitude of DoRA's begins as; null: it is none.
  const layout::Parameter* weight_of_magnitude(const std::string& name) const;
  /// Of the adapter that has this A or B.
  int64_t rank_of(const std::string& name) const;
  Status read_checkpoint(checkpoint::SavedRun& saved);
  /// Agrees on `read` over all ranks, then publishes the flats that were read. Collective.
  Status publish(const Status& read, bool frozen, bool trained);

  const Groups groups_;
  std::optional<LoraArgs> lora_;
  const at::Device device_;
  const at::ScalarType compute_, products_;
  std::vector<layout::UnitSpec> units_;
  layout::FlatPlan plan_;
  const layout::Stage& stage_;
  size_t overlap_;
  std::string optimizer_name_;
  OffloadTier tier_;
  RunAhead run_ahead_;
  HostCopies copies_;
  std::vector<std::unique_ptr<Flat>> flats_;
  std::vector<Flat*> trained_;  ///< flats that are not frozen, in flats_' order
  std::deque<int> reducing_;
  std::vector<int> reductions_;
  std::unique_ptr<UpdateMethod> method_;
  bool local_ = false;
  std::vector<std::vector<at::Tensor>> buffers_;  ///< [unit]
  std::set<std::string> bad_frozen_;              ///< found by this rank while it read
};

}  // namespace dsj::zero
