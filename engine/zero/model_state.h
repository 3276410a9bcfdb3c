// A model's parameters as ZeRO keeps them: the flats, who may see them, and the collective steps
// over all of them. The trainer walks the schedule and calls these; units (engine/models) see a
// UnitParameters.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "common/dsconfig/resolved.h"
#include "common/layout/lora.h"
#include "common/layout/partition.h"
#include "common/layout/schedule.h"
#include "common/result.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "engine/weights/weight_source.h"
#include "engine/zero/flat.h"
#include "engine/zero/offload_tier.h"

namespace dsj::zero {

at::ScalarType scalar_type(dsconfig::Precision precision);
class ModelState;

/// What a unit's forward and backward see: its parameters by index, as in its UnitSpec.
class UnitParameters {
 public:
  UnitParameters(ModelState& state, int unit) : state_(&state), unit_(unit) {}
  /// The gathered working copy in its shape. Do not keep it beyond the unit's run.
  at::Tensor weight(int parameter) const;
  /// `count` neighbours stacked on dimension 0 without a copy, or undefined where they are not
  /// neighbours.
  at::Tensor stacked_weight(int parameter, int count) const;
  /// Whether it has a gradient; false: frozen (LoRA).
  bool trained(int parameter) const;
  /// Where to write the gradient; without a tensor: the parameter is frozen.
  GradView grad(int parameter) const;
  GradView stacked_grad(int parameter, int count) const;
  /// The adapter of a weight, as indices of this unit's parameters; nullptr: it has none.
  const layout::Adapter* adapter(int weight) const;
  /// Of the adapters; call only where there is one.
  const LoraArgs& lora() const;
  /// The embedding's weight and gradient, for a tied head.
  UnitParameters embedding() const { return {*state_, 0}; }

 private:
  bool one_flat(int parameter, int count) const;
  ModelState* state_;
  int unit_;
};

/// What adapters and modules to save begin with.
struct AdapterStart {
  uint64_t seed = 0;  ///< of PEFT's start: A uniform in +-1/sqrt(in), B zero
  const weights::WeightSource* saved = nullptr;  ///< instead: an adapter in PEFT's layout
};

class ModelState {
 public:
  /// `lora` resolved (layout/lora.h); unset: every parameter is trained. Throws StorageError when
  /// offloaded state finds no place.
  ModelState(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
             at::Device device, comm::Collectives& collectives,
             const std::optional<LoraArgs>& lora = {}, const OffloadHost& host = {});

  const std::vector<layout::UnitSpec>& units() const { return units_; }
  const layout::FlatPlan& plan() const { return plan_; }
  Flat& flat(int index) { return *flats_[index]; }
  UnitParameters unit(int index) { return {*this, index}; }

  /// Reads this rank's masters from a Hugging Face directory (each rank only its bytes), then
  /// publishes them. Collective. Error: a tensor is missing or has another shape.
  Status load(const weights::WeightSource& source, const AdapterStart& adapters = {});
  /// The frozen parameters alone: before restore(), which has the others. Collective.
  Status load_frozen(const weights::WeightSource& source);

  // ---- a step, called in schedule order
  /// The flats that every step gathers, in order: parameters on NVMe are read ahead by it.
  void set_gathers(const std::vector<int>& flats);
  /// A step begins, or will as the next thing: reading ahead starts.
  void begin_step();
  void gather(int flat) { flats_[flat]->start_gather(); }
  void release(int flat) { flats_[flat]->release(); }
  /// Waits until the flats of a unit are readable.
  void wait_for(int unit);
  /// Starts a flat's reduction; at most `overlap` stay under way.
  void reduce(int flat, bool last);
  void finish_reductions();
  /// This rank's part of the squared gradient norm (of the sum over ranks), deterministic order. At
  /// stage 0 only rank 0's counts, so that the sum over ranks is right at every stage.
  double owned_sum_of_squares() const;
  /// The parameter whose reduced gradient is the first in the order of backward (head to embedding)
  /// with an infinity or a NaN: where the trouble began. Empty: none. Collective; reads every
  /// gradient, for the rare step that is skipped.
  std::string first_bad_gradient();
  /// Updates every owned element, and starts the gathers of whole copies; wait_for() finishes them.
  /// Collective for LAMB at stages 1 to 3: one all-reduce of two numbers per parameter.
  void step(const optim::Update& update);
  void clear_grad();

  // ---- state
  /// Hands this rank's pieces of a checkpoint to `emit` one by one; a piece lives for its call.
  Status for_pieces(const checkpoint::EmitPiece& emit);
  /// Every state of every parameter: what all ranks' pieces cover together.
  std::vector<checkpoint::Extent> extents() const;
  /// Reads every owned range, then publishes. Collective.
  Status restore(checkpoint::Reader& reader);
  /// Gathers one flat, calls `visit(parameter name, whole tensor on the host)` on rank 0 for each
  /// of its parameters, and releases it. Collective. For exports and tests.
  /// `trained_only` leaves frozen flats out.
  void visit_weights(const std::function<void(const layout::Slot&, const at::Tensor&)>& visit,
                     bool trained_only = false);

  comm::Collectives& collectives() { return collectives_; }

 private:
  friend class UnitParameters;
  /// LAMB's moments, and the coefficient of every parameter: [flat][slot].
  std::vector<std::vector<double>> lamb_coefficients(const optim::Update& update);

  comm::Collectives& collectives_;
  std::optional<LoraArgs> lora_;
  const at::Device device_;
  std::vector<layout::UnitSpec> units_;
  layout::FlatPlan plan_;
  int stage_;
  size_t overlap_;
  std::string optimizer_name_;
  OffloadTier tier_;
  std::vector<std::unique_ptr<Flat>> flats_;
  std::vector<Flat*> trained_;  ///< those that are not frozen, in the order of flats_
  std::deque<int> reducing_;
};

}  // namespace dsj::zero
