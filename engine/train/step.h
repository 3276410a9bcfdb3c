// One optimizer step: walks the schedule over units and micro-steps, reduces, clips, updates. This
// is the whole of ZeRO's control flow, in order. zero/flat.h says what a stage means, models/ what
// a unit computes.
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

#include "engine/models/row_cut.h"
#include "engine/models/unit.h"
#include "engine/observe/step_observer.h"
#include "engine/optim/averaging.h"
#include "engine/optim/loss_scaler.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/preference.h"
#include "engine/zero/layer_inputs.h"
#include "engine/zero/model_state.h"
#include "job/dsconfig/loss_normalization.h"
#include "job/dsconfig/objective.h"
#include "job/dsconfig/resolved.h"
#include "job/flight_log.h"

namespace dsj::train {

struct StepOptions {
  bool recompute = false;  ///< gradient_checkpointing: keep only each layer's input
  uint64_t seed = 0;       ///< for dropout and random-LTD
  dsconfig::LossNormalization normalization = dsconfig::LossNormalization::Token;
  /// Where it judges whole answers, nothing is dropped out, as in TRL.
  dsconfig::Objective objective = {};
  double label_smoothing = 0;   ///< of the loss of each token
  double neftune_alpha = 0;     ///< of the noise on embeddings, in training alone
  FlightLog* flight = nullptr;  ///< ticks with every part of a step; null: nobody looks
  layout::PieceRule pieces = {};
  /// With recompute: where the layers' inputs wait; null: where they are. It outlives the stepper.
  zero::LayerInputs* inputs = nullptr;
};

/// Numbers that a step adds up over the ranks beside its own, so that they agree without another
/// collective (saving.h).
using StepVotes = std::array<double, 3>;

/// A micro-batch's targets in parts, as optim::judge wants them; their logp is not known yet. Empty
/// where the objective judges none.
using Answers = std::vector<optim::Answer>;

/// One step's input on this rank.
struct StepInput {
  /// gradient_accumulation_steps of them, or fewer where an epoch ends; at least 1. Every rank has
  /// as many. With sequence_parallel_size each is this rank's part (models::MicroBatch::part_of).
  std::span<const models::MicroBatch> micro_batches;
  std::span<const Answers> answers = {};  ///< of each micro-batch; empty: nothing is judged
  /// Where the objective estimates the KL term: of each micro-batch, the rows with other rows' answers,
  /// and those answers. They are run before the step, forward only.
  std::span<const models::MicroBatch> beside = {};
  std::span<const Answers> beside_answers = {};
  int64_t step = 0;    ///< the step's number; part of the keys of draws
  optim::Rates rates;  ///< of this step
  int64_t tokens = 0;  ///< of this rank; of ranks that share micro-batches one counts
  /// Of all ranks' micro-batches, as the step before said (StepResult::next_targets). nullopt: the
  /// ranks add them up first, if the normalization needs them.
  std::optional<int64_t> targets = {};
  bool stop_requested = false;  ///< this rank was asked to stop
  StepVotes votes = {};         ///< of this rank
  /// How many targets this rank has in the next step, of ranks that share micro-batches one. Called when the device has been given all work
  /// of this one, so that rows are read meanwhile. Empty: nobody knows.
  std::function<int64_t()> next_targets = {};
  /// Called before the optimizer writes its state for the first time in this step; may be empty.
  std::function<void()> before_update = {};
};

struct StepResult {
  double loss = 0;  ///< the mean that StepOptions::normalization names
  /// L2 over all ranks, unscaled, before clipping. Where gradients stay on their ranks
  /// (zero/update_method.h): of this rank's own, by which it clips, as in DeepSpeed.
  double grad_norm = 0;
  double loss_scale = 1;         ///< as used in this step
  bool finite = true;            ///< loss and gradient are, on all ranks
  bool skipped = false;          ///< not updated: the norm was not finite
  std::string bad_gradient;      ///< skipped: the first bad parameter, else empty
  bool scale_exhausted = false;  ///< skipped at the smallest fp16 scale: the run is over
  int64_t tokens = 0;            ///< of all ranks
  bool stop = false;             ///< a rank was asked to stop; the same on all ranks
  StepVotes votes = {};          ///< the sums over the ranks
  /// optim::metrics_of() the micro-steps of all ranks.
  std::map<std::string, double> metrics = {};
  /// Of all ranks in the next step; nullopt: nobody knew.
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
  /// The loss of one micro-batch of this rank, forward only. Later steps are not affected.
  /// Collective: all ranks evaluate equally many micro-batches (evaluate.cc).
  Evaluated evaluate(const models::MicroBatch& batch);
  /// The same for answers: of each, the sum of its targets' losses: [answers] double, on the device. Of a
  /// reward model minus its score.
  at::Tensor answer_losses(const models::MicroBatch& batch, const Answers& answers);
  const dsconfig::Objective& objective() const { return options_.objective; }
  const zero::Groups& groups() const { return state_.groups(); }

  /// Updates applied so far: what bias correction counts. Part of a checkpoint.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }
  /// fp16's loss scaler. Part of a checkpoint.
  const optim::LossScaler& loss_scaler() const { return loss_scaler_; }
  void set_loss_scaler(const optim::LossScaler::State& state) { loss_scaler_.set_state(state); }
  /// Of a step with gradient_accumulation_steps.
  const layout::Schedule& schedule() const {
    return schedules_.at(config_.gradient_accumulation_steps);
  }
  /// `observer` hears of every step from now on; null: nobody does. It must outlive the steps.
  void observe(observe::StepObserver* observer) { observer_ = observer; }

 private:
  struct MicroStep;
  /// Makes the schedule of steps with so many micro-steps the current one.
  void take_schedule(int64_t micro_steps);
  /// What each micro-batch weighs in this rank's part of the loss. Collective where
  /// StepInput::targets is missing.
  std::vector<double> weights_of(const StepInput& input);
  /// `loss` [] double, on the device: a head pass adds its mean, weighed.
  void execute(const layout::Action& action, MicroStep& micro, const at::Tensor& loss);
  /// kto's k of each micro-step, 0 where the objective has none. Collective.
  std::vector<double> kls_of(const StepInput& input);
  /// The head's pass where the objective judges answers: their log-probabilities, the loss and its
  /// slopes by them, and each target's gradient with its answer's slope.
  void judge_turn(int unit, MicroStep& micro, const at::Tensor& loss);
  /// answer_losses() of x, the head's input.
  at::Tensor head_losses(int unit, const at::Tensor& x, const models::MicroBatch& batch,
                         const Answers& answers);
  /// A forward pass of a micro-batch alone; `head`: what its head does. `balance`: of its routers;
  /// null: not counted.
  void forward_alone(const models::MicroBatch& batch, models::RouterBalance* balance,
                     const std::function<void(int unit, const at::Tensor& x)>& head);
  void forward(int unit, MicroStep& micro);
  void backward(int unit, MicroStep& micro);
  /// Random-LTD: draws the tokens that the layer sees in this micro-step, if it drops any.
  void draw_kept(int unit, MicroStep& micro) const;
  /// Recompute: keeps the input of a layer until its backward asks for it.
  void keep_input(int unit, const at::Tensor& x, MicroStep& micro);
  at::Tensor take_input(int unit, MicroStep& micro);
  /// The tokens whose output the head wants of this layer; null: all.
  const at::Tensor* wanted(int unit, const MicroStep& micro) const;
  void tick() {
    if (options_.flight) options_.flight->tick();
  }
  /// `finite`: the gradients of all ranks are.
  void update(StepResult& result, const optim::Rates& rates, bool finite);
  /// Null: the model has learned positions.
  const models::ops::RopeTable* rope(int unit, const models::RowBounds& rows);
  static models::EmbeddingCall embedding_call(const MicroStep& micro);
  /// NEFTune's: uniform in +-alpha / sqrt(L * H), L the tokens of the longest row.
  at::Tensor embedding_noise(const MicroStep& micro) const;
  models::LayerCall call(int unit, MicroStep& micro);
  /// Of a micro-batch that ranks share; its rows must outlive the result.
  models::RowCut cut_of(const models::MicroBatch& batch) const;
  /// Of a micro-batch's auxiliary loss in this rank's part of the loss: each micro-batch of each rank
  /// counts alike.
  double balance_weight() const;

  const layout::ModelConfig& model_;
  const dsconfig::ResolvedConfig& config_;
  const StepOptions options_;
  zero::ModelState& state_;
  const at::Device device_;
  std::map<int64_t, layout::Schedule> schedules_;  ///< by micro-steps; made when first needed
  int64_t micro_steps_ = 0;                        ///< of the current one
  const layout::Schedule forward_schedule_;
  const std::unique_ptr<const models::Layer> layer_;
  const int lowest_;  ///< the unit where backward ends
  models::ops::Ropes ropes_;
  const optim::Averaging averaging_;
  optim::LossScaler loss_scaler_;
  int64_t updates_ = 0;
  /// Of this rank in this step, one micro-step after the other.
  std::vector<optim::Tally> tallies_;
  observe::StepObserver* observer_ = nullptr;
};

}  // namespace dsj::train
