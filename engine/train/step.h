// One optimizer step: walks the schedule over units and micro-steps, reduces, clips, updates. The
// whole of ZeRO's control flow reads in order here; what a stage means is in zero/flat, what a unit
// computes in models/.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/dsconfig/resolved.h"
#include "engine/models/unit.h"
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
  double loss = 0;       ///< mean over micro-steps and ranks of the micro-batch means
  double grad_norm = 0;  ///< global L2, before clipping
  bool skipped = false;  ///< not finite: no update
  int64_t tokens = 0;    ///< all ranks
  bool stop = false;     ///< some rank was asked to stop: the same answer on all ranks
};

class Stepper {
 public:
  /// All references must outlive it.
  Stepper(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
          const StepOptions& options, zero::ModelState& state, at::Device device);

  /// Collective: all ranks, same order of steps.
  StepResult run(const StepInput& input);

  /// Updates applied so far; what bias correction counts. Restored on resume.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  const layout::Schedule& schedule() const { return schedule_; }

 private:
  struct MicroStep;
  void execute(const layout::Action& action, MicroStep& micro, double& loss);
  void backward(int unit, MicroStep& micro);
  bool update(double grad_norm, const optim::Rates& rates);
  const models::ops::RopeTable& rope(int64_t seq);
  models::LayerCall call(int unit, const MicroStep& micro);

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig& config_;
  const StepOptions options_;
  zero::ModelState& state_;
  const at::Device device_;
  const layout::Schedule schedule_;
  const std::unique_ptr<const models::Layer> layer_;
  const int lowest_;                                ///< backward ends at this unit
  std::map<int64_t, models::ops::RopeTable> rope_;  ///< by sequence length
  int64_t updates_ = 0;
};

}  // namespace dsj::train
