// A model's parameters as ZeRO keeps them: the flats, and the collective steps over all of them.
// The trainer walks the schedule and calls ModelState. Units (engine/models) see UnitParameters
// only.
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
#include "engine/zero/flat.h"
#include "engine/zero/groups.h"
#include "engine/zero/host_copies.h"
#include "engine/zero/offload_tier.h"
#include "engine/zero/piece_sums.h"
#include "engine/zero/run_ahead.h"
#include "engine/zero/update_method.h"
#include "job/dsconfig/resolved.h"
#include "job/layout/lora.h"
#include "job/layout/partition.h"
#include "job/layout/schedule.h"

namespace dsj::zero {

class ModelState;

/// What a unit's forward and backward see: its parameters, by their index in its UnitSpec.
class UnitParameters {
 public:
  UnitParameters(ModelState& state, int unit) : state_(&state), unit_(unit) {}
  /// A view of the gathered working copy, in the parameter's shape and its flat's type
  /// (plan::types_of_flat); of a packed weight (QLoRA) a copy in the products' type, unpacked for this
  /// call. Do not keep it beyond the product that reads it.
  at::Tensor weight(int parameter) const;
  /// `count` neighbours stacked on dimension 0 without a copy. Undefined if they are not neighbours
  /// in one flat.
  at::Tensor stacked_weight(int parameter, int count) const;
  /// [numel] fp32, of the unit's buffers (layout::UnitSpec).
  at::Tensor buffer(int index) const;
  /// Of what enters matrix products; and of all else that a unit reads and passes on. They differ
  /// under torch_autocast alone.
  at::ScalarType product_type() const;
  at::ScalarType stream_type() const;
  /// Whether it has a gradient. False: it is frozen (LoRA).
  bool trained(int parameter) const;
  /// Where to write the gradient. The tensor is undefined if the parameter is frozen.
  GradView grad(int parameter) const;
  GradView stacked_grad(int parameter, int count) const;
  /// The adapter of a weight, as indices of this unit's parameters. nullptr: it has none.
  const layout::Adapter* adapter(int weight) const;
  /// The adapters' arguments. Call it only where there is an adapter.
  const LoraArgs& lora() const;
  /// The same unit, whose gradients go into `sums`, which must outlive it.
  UnitParameters adding_to(PieceSums& sums) const {
    UnitParameters same = *this;
    same.sums_ = &sums;
    return same;
  }
  /// The embedding's weight and gradient, for a tied head.
  UnitParameters embedding() const { return {*state_, 0}; }

 private:
  bool one_flat(int parameter, int count) const;
  /// Where a piece writes it, if this unit adds pieces up.
  GradView in_sums(int parameter, int count, const GradView& grad) const;
  ModelState* state_;
  int unit_;
  PieceSums* sums_ = nullptr;
};

/// The initial values of adapters and of modules_to_save.
struct AdapterStart {
  uint64_t seed = 0;                             ///< of new adapters (initial_adapter.h)
  const weights::WeightSource* saved = nullptr;  ///< instead: a saved adapter, PEFT's layout
};

class ModelState {
 public:
  /// `groups`: by the config's sizes (plan::rank_groups). `lora`: resolved (layout/lora.h); unset:
  /// every parameter is trained. References, and what `groups` names, must outlive it. Throws
  /// StorageError if offloaded state finds no place.
  ModelState(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
             at::Device device, const Groups& groups, const std::optional<LoraArgs>& lora = {},
             const OffloadHost& host = {});

  const std::vector<layout::UnitSpec>& units() const { return units_; }
  const layout::FlatPlan& plan() const { return plan_; }
  Flat& flat(int index) { return *flats_[index]; }
  UnitParameters unit(int index) { return {*this, index}; }

  // The three functions that read files are collective and have one verdict for all ranks: on
  // success each rank's part is published, on an error nothing is, and the rank that could not read
  // says why. Each rank reads only its own bytes.
  /// Reads the masters from a Hugging Face directory. Error: a tensor is missing or has another
  /// shape, or a read failed.
  Status load(const weights::WeightSource& source, const AdapterStart& adapters = {});
  /// Loads the frozen parameters and the buffers alone. Call it before restore(), which loads the
  /// others.
  Status load_frozen(const weights::WeightSource& source);

  // ---- a step, called in schedule order
  /// The flats that every step gathers, in order. Parameters on NVMe are read ahead by it.
  void set_gathers(const std::vector<int>& flats);
  /// The flats that every micro-step reduces, in order. A gradient that lies in host memory is fetched
  /// while the one before it is computed.
  void set_reductions(std::vector<int> flats) { reductions_ = std::move(flats); }
  /// A step is about to begin: starts reading ahead.
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
  /// Waits until a unit's flats can be read.
  void wait_for(int unit);
  /// Starts a flat's reduction. At most two stay in flight with overlap_comm, none without.
  void reduce(int flat, bool last);
  void finish_reductions();
  /// This rank's part of the squared gradient norm, [] double on the device; the sum over ranks is
  /// the whole. Of gradients that several ranks have, only the first counts; of those that stay local
  /// each rank counts its own. The order of addition is fixed.
  at::Tensor owned_sum_of_squares() const;
  /// The first parameter, in the order of backward (head to embedding), whose reduced gradient has
  /// an infinity or a NaN. Empty: none. Collective. It reads every gradient: call it only for a
  /// step that is skipped.
  std::string first_bad_gradient();
  /// Updates every owned element by the optimizer's method, and starts the gathers of whole copies;
  /// wait_for() finishes them. Collective.
  void step(const StepNumbers& numbers) { method_->step(numbers); }
  const UpdateMethod& update_method() const { return *method_; }
  void clear_grad();
  /// Whether gradients stay on their ranks, unreduced (GradientSum::keep_local). Then each rank's sum
  /// of squares is its own gradient's. Call it between two steps; the same on all ranks.
  void keep_gradients_local(bool local);
  bool gradients_are_local() const { return local_; }

  // ---- state
  /// Hands this rank's pieces of a checkpoint to `emit`, one by one; of what several ranks have, only
  /// the first one's. A piece is valid during its call, or longer if it stays (checkpoint/writer.h). Error: emit's.
  Status for_pieces(const checkpoint::EmitPiece& emit);
  /// Every state of every trained parameter: what the pieces of all ranks cover together.
  std::vector<checkpoint::Extent> extents() const;
  /// The first parameter, in the order of forward, whose master has an infinity or a NaN. Empty: none
  /// that is trained. It reads every master. Collective.
  std::string first_bad_weight();
  /// The first frozen parameter whose values, as they were read and in the type they are kept in, have
  /// an infinity or a NaN. Empty: none. Collective.
  std::string first_bad_frozen_weight();
  /// Reads every owned range of the trained parameters. BadInput: the checkpoint lacks a state or
  /// has another size. Environment: it is damaged (checkpoint/saved_run.h); then another one may be
  /// restored. Collective, one verdict for all ranks.
  Status restore(checkpoint::SavedRun& saved);
  /// Gathers one flat at a time. Rank 0 calls visit(slot, whole tensor on the host, compute type)
  /// for each of its parameters. `trained_only` leaves frozen flats out. Collective. For exports
  /// and tests.
  void visit_weights(const std::function<void(const layout::Slot&, const at::Tensor&)>& visit,
                     bool trained_only = false);

  /// All ranks.
  comm::Collectives& collectives() { return *groups_.world; }
  const Groups& groups() const { return groups_; }

 private:
  friend class UnitParameters;
  /// The first of `names` that is bad on any rank; empty: none. Collective.
  std::string first_of(const std::vector<std::string>& names, const std::set<std::string>& bad);
  Status read_buffers(const weights::WeightSource& source);
  Status read_frozen(const weights::WeightSource& source);
  Status read_trained(const weights::WeightSource& source, const AdapterStart& adapters);
  Status read_checkpoint(checkpoint::SavedRun& saved);
  /// Agrees on `read`, then makes what was read the working copies. Collective.
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
