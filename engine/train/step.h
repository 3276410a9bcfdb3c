// One optimizer step: walks the schedule over units and micro-steps, reduces, clips, updates. The
// whole of ZeRO's control flow reads in order here; what a stage means is in zero/flat, what a unit
// computes in models/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/dsconfig/resolved.h"
#include "engine/models/unit.h"
#include "engine/optim/averaging.h"
#include "engine/optim/loss_scaler.h"
#include "engine/observe/step_observer.h"
#include "engine/optim/optimizer.h"
#include "engine/zero/model_state.h"

namespace dsj::train {

struct StepOptions {
  bool recompute = false;  ///< gradient_checkpointing: keep only the boundaries between units
  uint64_t seed = 0;       ///< of dropout
};

/// What ranks add up at the end of a step besides the gradient norm.
struct StepInput {
  std::span<const models::MicroBatch> micro_batches;  ///< gradient_accumulation_steps of them
  int64_t step = 0;    ///< number of this step; with the seed it decides what dropout drops
  optim::Rates rates;  ///< of this step
  int64_t tokens = 0;  ///< of this rank, padding not counted
  bool stop_requested = false;  ///< this rank was asked to stop after the step
};

struct StepResult {
  double loss = 0;               ///< mean over micro-steps and ranks of the micro-batch means
  double grad_norm = 0;          ///< global L2, unscaled, before clipping
  double loss_scale = 1;         ///< of this step
  bool skipped = false;          ///< the norm is not finite: no update
  std::string bad_gradient;      ///< skipped: the first parameter with such a gradient
  bool scale_exhausted = false;  ///< skipped, and fp16's scale is at its minimum: the run is over
  int64_t tokens = 0;            ///< all ranks
  bool stop = false;             ///< some rank was asked to stop: the same answer on all ranks
};

class Stepper {
 public:
  /// All references must outlive it.
  Stepper(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
          const StepOptions& options, zero::ModelState& state, at::Device device);

  /// Collective: all ranks, same order of steps.
  StepResult run(const StepInput& input);

  struct Evaluated {
    double loss_sum = 0;  ///< over valid targets
    int64_t targets = 0;
  };
  /// The loss of one micro-batch of this rank, forward only: nothing of a later step changes.
  /// Collective: all ranks evaluate the same number of micro-batches (evaluate.cc).
  Evaluated evaluate(const models::MicroBatch& batch);

  /// Updates applied so far; what bias correction counts. Restored on resume.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  /// fp16's; also part of what a checkpoint holds.
  const optim::LossScaler& loss_scaler() const { return loss_scaler_; }
  void set_loss_scaler(const optim::LossScaler::State& state) { loss_scaler_.set_state(state); }
  const layout::Schedule& schedule() const { return schedule_; }
  /// Told of every step from now on; null: nobody is. Must outlive the steps.
  void observe(observe::StepObserver* observer) { observer_ = observer; }

 private:
  struct MicroStep;
  void execute(const layout::Action& action, MicroStep& micro, double& loss);
  void backward(int unit, MicroStep& micro);
  void update(StepResult& result, const optim::Rates& rates);
  const models::ops::RopeTable& rope(int64_t seq);
  static models::EmbeddingCall embedding_call(const MicroStep& micro);
  models::LayerCall call(int unit, const MicroStep& micro);

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig& config_;
  const StepOptions options_;
  zero::ModelState& state_;
  const at::Device device_;
  const layout::Schedule schedule_, forward_schedule_;
  const std::unique_ptr<const models::Layer> layer_;
  const int lowest_;                                ///< backward ends at this unit
  std::map<int64_t, models::ops::RopeTable> rope_;  ///< by sequence length
  const optim::Averaging averaging_;
  optim::LossScaler loss_scaler_;
  int64_t updates_ = 0;
  observe::StepObserver* observer_ = nullptr;
};

}  // namespace dsj::train
