// Runs one optimizer step: walks the schedule over units and micro-steps, reduces, clips, updates.
// This is all of ZeRO's control flow, in order. zero/flat/flat.h defines the stages, models/ the
// computation of a unit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/models/unit/row_cut.h"
#include "engine/models/unit/unit.h"
#include "engine/observe/step_observer.h"
#include "engine/optim/averaging.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/preference.h"
#include "engine/zero/model_state.h"
#include "engine/zero/storage/layer_inputs.h"
#include "job/dsconfig/config/loss_normalization.h"
#include "job/dsconfig/config/objective.h"
#include "job/dsconfig/config/resolved.h"
#include "job/flight_log.h"

namespace dsj::train {

struct StepOptions {
  bool recompute = false;  ///< gradient_checkpointing: keep only each layer's input
  uint64_t seed = 0;       ///< for dropout and random-LTD
  dsconfig::LossNormalization normalization = dsconfig::LossNormalization::Token;
  /// If it judges whole answers, there is no dropout, as in TRL.
  dsconfig::Objective objective = {};
  models::TokenLoss token_loss = {};  ///< of each target
  double neftune_alpha = 0;           ///< of the noise on embeddings, in training only
  FlightLog* flight = nullptr;        ///< ticks at every part of a step; may be null
  layout::PieceRule pieces = {};
  /// With recompute: stores the layers' inputs; null: kept on the device. Must outlive this.
  zero::LayerInputs* inputs = nullptr;
};

/// Numbers that a step sums over the ranks together with its own, so that ranks agree without
/// another collective (saving.h).
using StepVotes = std::array<double, 3>;

/// A micro-batch's answers as optim::judge takes them, before their logp is known. Empty if the
/// objective judges no answers.
using Answers = std::vector<optim::Answer>;

/// One step's input on this rank.
struct StepInput {
  /// gradient_accumulation_steps micro-batches, or fewer at the end of an epoch; at least 1, the
  /// same number on every rank. With sequence_parallel_size, this rank's part
  /// (MicroBatch::part_of).
  std::span<const models::MicroBatch> micro_batches;
  std::span<const Answers> answers = {};  ///< per micro-batch; empty if nothing is judged
  /// If the objective estimates the KL term: per micro-batch, the rows with other rows' answers,
  /// and those answers. They run before the step, forward only.
  std::span<const models::MicroBatch> beside = {};
  std::span<const Answers> beside_answers = {};
  int64_t step = 0;    ///< the step's number; seeds random draws
  optim::Rates rates;  ///< of this step
  int64_t tokens = 0;  ///< of this rank; one of the ranks that share micro-batches counts
  /// The targets of all ranks' micro-batches, from the previous StepResult::next_targets. If
  /// nullopt, the ranks sum them first, if the normalization needs them.
  std::optional<int64_t> targets = {};
  bool stop_requested = false;  ///< this rank was asked to stop
  StepVotes votes = {};         ///< this rank's
  /// Returns this rank's targets in the next step; one of the ranks that share micro-batches
  /// counts. Called after all work of the step is queued, to overlap reading. Empty: unknown.
  std::function<int64_t()> next_targets = {};
  /// Called before the optimizer writes its state for the first time in this step; may be empty.
  std::function<void()> before_update = {};
};

struct StepResult {
  double loss = 0;  ///< the mean that StepOptions::normalization names
  /// L2 norm over all ranks, unscaled, before clipping. With local gradients
  /// (zero/methods/update_method.h): the norm of its own gradient, by which it clips, as in DeepSpeed.
  double grad_norm = 0;
  double loss_scale = 1;         ///< used in this step
  bool finite = true;            ///< loss and gradient are finite on all ranks
  bool skipped = false;          ///< no update, because the norm was not finite
  std::string bad_gradient;      ///< if skipped: the first bad parameter
  bool scale_exhausted = false;  ///< skipped at the smallest fp16 scale; ends the run
  int64_t tokens = 0;            ///< of all ranks
  bool stop = false;             ///< a rank was asked to stop; same on all ranks
  StepVotes votes = {};          ///< sums over the ranks
  /// optim::metrics_of() for the micro-steps of all ranks.
  std::map<std::string, double> metrics = {};
  /// The targets of all ranks in the next step; nullopt if unknown.
  std::optional<int64_t> next_targets = {};
};

class Stepper {
 public:
  /// All references must outlive the stepper.
  Stepper(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
          const StepOptions& options, zero::ModelState& state, at::Device device);

  /// Runs one step. Collective: all ranks, in the same order of steps. Throws CollectiveError or
  /// StorageError.
  StepResult run(const StepInput& input);
  dsconfig::LossNormalization normalization() const { return options_.normalization; }

  struct Evaluated {
    at::Tensor loss_sum;  ///< [] double, on the device: over valid targets
    int64_t targets = 0;
  };
  /// The loss of one micro-batch of this rank, forward only. Does not affect later steps.
  /// Collective: all ranks evaluate the same number of micro-batches (evaluate.cc).
  Evaluated evaluate(const models::MicroBatch& batch);
  /// The same per answer: the sum of its targets' losses, [answers] double, on the device. For a
  /// reward model, minus its score.
  at::Tensor answer_losses(const models::MicroBatch& batch, const Answers& answers);
  const dsconfig::Objective& objective() const { return options_.objective; }
  const zero::Groups& groups() const { return state_.groups(); }

  /// Updates applied so far; bias correction uses it. Part of a checkpoint.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  /// fp16's loss scaler. Part of a checkpoint.
  const optim::LossScaler& loss_scaler() const { return loss_scaler_; }
  void set_loss_scaler(const optim::LossScaler::State& state) { loss_scaler_.set_state(state); }
  /// The schedule of a step with gradient_accumulation_steps micro-steps.
  const layout::Schedule& schedule() const {
    return schedules_.at(config_.gradient_accumulation_steps);
  }
  /// Calls `observer` for every further step; null stops it. Must outlive the steps.
  void observe(observe::StepObserver* observer) { observer_ = observer; }

 private:
  struct MicroStep;
  /// Makes the schedule for `micro_steps` micro-steps the current one.
  void take_schedule(int64_t micro_steps);
  /// The weight of each micro-batch in this rank's part of the loss. Collective if
  /// StepInput::targets is missing.
  std::vector<double> weights_of(const StepInput& input);
  /// `loss` [] double, on the device: a head's pass adds its weighted mean.
  void execute(const layout::Action& action, MicroStep& micro, const at::Tensor& loss);
  /// kto's k of each micro-step; 0 if the objective has none. Collective.
  std::vector<double> kls_of(const StepInput& input);
  /// The head's pass if the objective judges answers: log-probabilities, the loss and its
  /// derivative by each, and each target's gradient times its answer's derivative.
  void judge_turn(int unit, MicroStep& micro, const at::Tensor& loss);
  /// answer_losses() for x, the head's input.
  at::Tensor head_losses(int unit, const at::Tensor& x, const models::MicroBatch& batch,
                         const Answers& answers);
  /// A forward pass of one micro-batch; `head`: what to do at its head. `balance`: collects its
  /// routers' balance; may be null.
  void forward_alone(const models::MicroBatch& batch, models::RouterBalance* balance,
                     const std::function<void(int unit, const at::Tensor& x)>& head);
  void forward(int unit, MicroStep& micro);
  void backward(int unit, MicroStep& micro);
  /// Random-LTD: draws the tokens that the layer processes in this micro-step, if it drops any.
  void draw_kept(int unit, MicroStep& micro) const;
  /// Recompute: keeps the input of a layer until its backward takes it.
  void keep_input(int unit, const at::Tensor& x, MicroStep& micro);
  at::Tensor take_input(int unit, MicroStep& micro);
  /// The tokens of this layer whose output the head needs; null means all.
  const at::Tensor* wanted(int unit, const MicroStep& micro) const;
  void tick() {
    if (options_.flight) options_.flight->tick();
  }
  /// `finite`: whether the gradients of all ranks are finite.
  void update(StepResult& result, const optim::Rates& rates, bool finite);
  /// Null if the model has learned positions.
  const models::ops::RopeTable* rope(int unit, const models::RowBounds& rows);
  static models::EmbeddingCall embedding_call(const MicroStep& micro);
  /// NEFTune's noise: uniform in +-alpha / sqrt(L * H), L the tokens of the longest row.
  at::Tensor embedding_noise(const MicroStep& micro) const;
  models::LayerCall call(int unit, MicroStep& micro);
  /// The key of a unit's dropout; nullopt without dropout.
  static std::optional<uint64_t> unit_key(int unit, const MicroStep& micro);
  /// The cut of a micro-batch that ranks share; its rows must outlive the result.
  models::RowCut cut_of(const models::MicroBatch& batch) const;
  /// The weight of a micro-batch's auxiliary loss in this rank's part of the loss: the same for
  /// each micro-batch of each rank.
  double balance_weight() const;

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig& config_;
  const StepOptions options_;
  zero::ModelState& state_;
  const at::Device device_;
  std::map<int64_t, layout::Schedule> schedules_;  ///< by number of micro-steps; made at first use
  int64_t micro_steps_ = 0;                        ///< of the current schedule
  const layout::Schedule forward_schedule_;
  const std::unique_ptr<const models::Layer> layer_;
  const int lowest_;  ///< the last unit of backward
  models::ops::Ropes ropes_;
  const optim::Averaging averaging_;
  optim::LossScaler loss_scaler_;
  int64_t updates_ = 0;
  /// This rank's tallies of this step, by micro-step.
  std::vector<optim::Tally> tallies_;
  observe::StepObserver* observer_ = nullptr;
};

}  // namespace dsj::train
