#include "engine/train/step/step.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "common/check.h"
#include "engine/comm/agree.h"
#include "engine/device/device.h"
#include "engine/models/unit/kept_tokens.h"
#include "engine/train/step/extremes.h"
#include "engine/zero/storage/scalar_type.h"
#include "job/plan/zero_plan.h"

namespace dsj::train {

using layout::Action;

/// The state of a micro-step from its forward to its backward.
struct Stepper::MicroStep {
  const models::MicroBatch* batch = nullptr;
  models::RowCut cut;                     ///< if ranks share the micro-batch
  const Answers* answers = nullptr;       ///< null if nothing is judged
  double kl = 0;                          ///< kto's
  double weight = 0;                      ///< of its mean loss (optim::loss_weights)
  uint64_t dropout_key = 0;               ///< from step, micro-step and rank
  at::Tensor x;                           ///< [N, H]: the activation, then its gradient
  std::vector<at::Tensor> boundaries;     ///< recompute: input of each layer
  std::vector<models::LayerSaved> saved;  ///< otherwise: the input of each layer's backward
  std::vector<std::optional<models::KeptTokens>> kept;  ///< random-LTD; nullopt means all tokens
  int64_t step = 0;
  int64_t first_row = 0;  ///< index of its first row among all rows of the step
  std::optional<models::RouterBalance> balance;  ///< nullopt if there is no auxiliary loss
  models::Carried carried;                       ///< empty unless the model carries()
};

Stepper::Stepper(const layout::ModelConfig& model, const dsconfig::ResolvedConfig& config,
                 const StepOptions& options, zero::ModelState& state, at::Device device)
    : model_(model),
      config_(config),
      options_(options),
      state_(state),
      device_(device),
      forward_schedule_(layout::make_forward_schedule(
          state.units(), state.plan(), plan::schedule_limits(config, state.collectives().world()))),
      layer_(models::make_layer(model)),
      lowest_(layout::lowest_trainable(state.units())),
      ropes_(model, at::TensorOptions().dtype(zero::scalar_type(config.precision)).device(device)),
      averaging_(optim::averaging(config, state.collectives().world())),
      loss_scaler_(optim::LossScaler::of(config)) {
  take_schedule(config.gradient_accumulation_steps);
  state_.set_reductions(layout::reductions(schedule()));
}

void Stepper::take_schedule(int64_t micro_steps) {
  if (micro_steps == micro_steps_) return;
  DSJ_CHECK(micro_steps >= 1 && micro_steps <= config_.gradient_accumulation_steps);
  auto& made = schedules_[micro_steps];
  if (made.actions.empty())
    made = layout::make_schedule(state_.units(), state_.plan(),
                                 plan::schedule_limits(config_, state_.collectives().world()),
                                 micro_steps);
  std::vector<int> gathers;
  for (const Action& action : made.actions)
    if (action.kind == Action::Kind::Gather) gathers.push_back(action.flat);
  state_.set_gathers(gathers);
  micro_steps_ = micro_steps;
}

const models::ops::RopeTable* Stepper::rope(int unit, const models::RowBounds& rows) {
  return ropes_.of(unit - 1, rows.positions_end());
}

models::RowCut Stepper::cut_of(const models::MicroBatch& batch) const {
  comm::Collectives* const ranks = state_.groups().sequence;
  DSJ_CHECK(batch.is_part() == (ranks != nullptr));
  return {ranks, &batch.all_rows()};
}

models::EmbeddingCall Stepper::embedding_call(const MicroStep& micro) {
  models::EmbeddingCall call{.rows = &micro.batch->rows()};
  if (!micro.answers) call.dropout_key = models::dropout_key(micro.dropout_key, 0);
  return call;
}

at::Tensor Stepper::embedding_noise(const MicroStep& micro) const {
  if (options_.neftune_alpha == 0) return {};
  constexpr int64_t kNoise = -1;  // not a unit's number
  const auto& rows = micro.batch->rows();
  const int64_t longest = std::max<int64_t>(1, micro.batch->all_rows().longest());
  const double most =
      options_.neftune_alpha / std::sqrt(static_cast<double>(longest * model_.hidden_size));
  // On the host, so that every device draws the same.
  at::Generator draw =
      at::make_generator<at::CPUGeneratorImpl>(models::dropout_key(micro.dropout_key, kNoise));
  const at::Tensor noise = at::empty({rows.tokens(), model_.hidden_size}, at::kFloat);
  noise.uniform_(-most, most, draw);
  return device::upload(noise, device_);
}

models::LayerCall Stepper::call(int unit, MicroStep& micro) {
  const auto& kept = micro.kept[static_cast<size_t>(unit)];
  return {.layer = unit - 1,
          .rows = kept ? &kept->rows : &micro.batch->rows(),
          .cut = micro.batch->is_part() ? &micro.cut : nullptr,
          .rope = rope(unit, micro.batch->all_rows()),
          .dropout_key = unit_key(unit, micro),
          .outputs = kept ? nullptr : wanted(unit, micro),
          .pieces = options_.pieces,
          .balance = micro.balance ? &*micro.balance : nullptr,
          .carried = model_.carries() ? &micro.carried : nullptr};
}

std::optional<uint64_t> Stepper::unit_key(int unit, const MicroStep& micro) {
  if (micro.answers) return std::nullopt;
  return models::dropout_key(micro.dropout_key, unit);
}

void Stepper::keep_input(int unit, const at::Tensor& x, MicroStep& micro) {
  if (options_.inputs)
    options_.inputs->put(unit - 1, x);
  else
    micro.boundaries[static_cast<size_t>(unit)] = x;
}

at::Tensor Stepper::take_input(int unit, MicroStep& micro) {
  if (!options_.inputs) return std::move(micro.boundaries[static_cast<size_t>(unit)]);
  const bool another = unit - 1 >= std::max(1, lowest_);
  return options_.inputs->take(unit - 1, another ? unit - 2 : -1);
}

void Stepper::backward(int unit, MicroStep& micro) {
  const auto p = state_.unit(unit);
  if (unit == 0) {
    models::embedding_backward(p, model_, micro.batch->input_ids(), micro.x, embedding_call(micro));
    micro.x.reset();
    return;
  }
  if (state_.units()[static_cast<size_t>(unit)].only_rows)
    return models::layer_table_backward(p, model_, micro.batch->input_ids(), micro.carried);
  if (state_.units()[static_cast<size_t>(unit)].before_layers)
    return models::layer_inputs_backward(p, model_, micro.x, unit_key(unit, micro), options_.pieces,
                                         micro.carried);
  const models::LayerCall layer_call = call(unit, micro);
  models::LayerSaved saved;
  if (options_.recompute) {
    saved = layer_->recompute(p, take_input(unit, micro), layer_call);
  } else {
    saved = std::move(micro.saved[unit]);
    micro.saved[unit] = {};
  }
  auto& kept = micro.kept[static_cast<size_t>(unit)];
  if (!kept) {
    micro.x = layer_->backward(p, std::move(micro.x), layer_call, std::move(saved));
    return;
  }
  if (const at::Tensor* outputs = wanted(unit, micro)) {  // the head gave only these gradients
    const at::Tensor all = micro.x.new_zeros({micro.batch->rows().tokens(), model_.hidden_size});
    all.index_copy_(0, *outputs, micro.x);
    micro.x = all;
  }
  at::Tensor dy = micro.x.index_select(0, kept->indices);
  const at::Tensor dx = layer_->backward(p, std::move(dy), layer_call, std::move(saved));
  micro.x.index_copy_(0, kept->indices, dx);  // the other gradients bypass the layer
  kept.reset();
}

const at::Tensor* Stepper::wanted(int unit, const MicroStep& micro) const {
  if (micro.balance) return nullptr;  // all tokens go through the last layer's router
  return unit == model_.num_layers ? micro.batch->last_outputs() : nullptr;
}

void Stepper::draw_kept(int unit, MicroStep& micro) const {
  const auto& ltd = config_.data_efficiency.random_ltd;
  const int64_t layer = unit - 1;
  if (!ltd || !std::ranges::binary_search(ltd->layers, layer)) return;
  const uint64_t key = models::kept_key(options_.seed, micro.step, layer, micro.first_row);
  micro.kept[static_cast<size_t>(unit)] =
      models::keep_tokens(micro.batch->rows(), ltd->kept(micro.step), key, device_);
}

void Stepper::forward(int unit, MicroStep& micro) {
  const auto p = state_.unit(unit);
  if (unit == 0) {
    models::EmbeddingCall call = embedding_call(micro);
    const at::Tensor noise = embedding_noise(micro);
    if (noise.defined()) call.noise = &noise;
    micro.x = models::embedding_forward(p, model_, micro.batch->input_ids(), call);
    return;
  }
  if (state_.units()[static_cast<size_t>(unit)].only_rows)
    return models::layer_table_forward(p, model_, micro.batch->input_ids(), micro.carried);
  if (state_.units()[static_cast<size_t>(unit)].before_layers) {
    models::layer_inputs_forward(p, model_, micro.x, unit_key(unit, micro), options_.pieces,
                                 micro.carried);
    if (lowest_ == 0) micro.carried.embedded = micro.x;
    return;
  }
  draw_kept(unit, micro);
  const auto& kept = micro.kept[static_cast<size_t>(unit)];
  // Below the lowest trained unit there is no backward, so nothing is saved for it.
  const bool backward = unit >= lowest_;
  at::Tensor in = kept ? micro.x.index_select(0, kept->indices) : micro.x;
  if (backward && options_.recompute) keep_input(unit, in, micro);
  at::Tensor out = layer_->forward(p, std::move(in), call(unit, micro),
                                   backward && !options_.recompute ? &micro.saved[unit] : nullptr);
  if (!kept) {
    micro.x = std::move(out);
    return;
  }
  // Nothing else uses x: earlier layers saved their inputs, which are other tensors.
  micro.x.index_copy_(0, kept->indices, out);
  if (const at::Tensor* outputs = wanted(unit, micro)) micro.x = micro.x.index_select(0, *outputs);
}

void Stepper::execute(const Action& action, MicroStep& micro, const at::Tensor& loss) {
  switch (action.kind) {
    case Action::Kind::Gather:
      return state_.gather(action.flat);
    case Action::Kind::Release:
      return state_.release(action.flat);
    case Action::Kind::Reduce:
      return state_.reduce(action.flat, action.micro_step + 1 == micro_steps_);
    case Action::Kind::Forward:
      state_.wait_for(action.unit);
      return forward(action.unit, micro);
    case Action::Kind::Turn: {
      state_.wait_for(action.unit);
      if (micro.answers) return judge_turn(action.unit, micro, loss);
      auto head = models::head_turn(state_.unit(action.unit), model_, micro.x, *micro.batch,
                                    loss_scaler_.scale() * micro.weight, options_.pieces,
                                    options_.token_loss);
      if (head.targets > 0)
        loss.add_(head.loss_sum.mul_(micro.weight / static_cast<double>(head.targets)));
      if (micro.balance) loss.add_(micro.balance->loss().mul_(balance_weight()));
      micro.x = std::move(head.dx);
      return;
    }
    case Action::Kind::Backward:
      if (action.unit > 0) state_.wait_for(action.unit);
      return backward(action.unit, micro);
  }
}

at::Tensor Stepper::head_losses(int unit, const at::Tensor& x, const models::MicroBatch& batch,
                                const Answers& answers) {
  const auto p = state_.unit(unit);
  const std::vector<int64_t> parts = optim::targets_of(answers);
  if (!options_.objective.scores())
    return models::head_part_losses(p, model_, x, batch, parts, options_.pieces);
  const at::Tensor losses = models::head_scores(p, model_, x, batch).neg();
  if (losses.size(0) == std::ssize(answers)) return losses;
  const at::Tensor all = at::zeros({std::ssize(answers)}, losses.options());
  int64_t next = 0;
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i] > 0) all[static_cast<int64_t>(i)].copy_(losses[next++]);
  return all;
}

void Stepper::judge_turn(int unit, MicroStep& micro, const at::Tensor& loss) {
  Answers answers = *micro.answers;
  const auto p = state_.unit(unit);
  device::HostRead read(head_losses(unit, micro.x, *micro.batch, answers));
  const double* losses = read.get().const_data_ptr<double>();
  for (size_t i = 0; i < answers.size(); ++i) answers[i].logp = -losses[i];
  const optim::Judged judged = optim::judge(options_.objective, answers, micro.kl);
  loss.add_(micro.weight * judged.loss);
  if (micro.balance) loss.add_(micro.balance->loss().mul_(balance_weight()));
  tallies_.insert(tallies_.end(), judged.tallies.begin(), judged.tallies.end());
  const at::Tensor weights = at::empty({micro.batch->targets().count}, at::kFloat);
  float* weight = weights.mutable_data_ptr<float>();
  for (size_t i = 0; i < answers.size(); ++i)
    weight =
        std::fill_n(weight, answers[i].targets,
                    static_cast<float>(-judged.slopes[i] * micro.weight * loss_scaler_.scale()));
  if (options_.objective.scores()) {  // the losses are minus the scores
    micro.x = models::head_score_turn(p, model_, micro.x, *micro.batch,
                                      device::upload(weights.neg(), device_));
    return;
  }
  micro.x = models::head_turn_weighted(p, model_, micro.x, *micro.batch,
                                       device::upload(weights, device_), options_.pieces)
                .dx;
}

namespace {

/// Whether a norm that is not finite skips the step, as in DeepSpeed 0.19. Its ZeRO optimizers
/// check the norm in every precision; in bf16 check_grad_overflow turns this off, except at stage 3
/// and at stage 1 with fp32 accumulation. Without ZeRO, fp32 ignores the norm.
bool skips_bad_norm(const dsconfig::ResolvedConfig& config) {
  using dsconfig::Precision;
  const int stage = config.zero.stage;
  if (dsconfig::scales_loss(config)) return true;
  switch (config.precision) {
    case Precision::Fp16:
      return true;
    case Precision::Bf16:
      return config.bf16_check_grad_overflow || stage == 3 ||
             (stage == 1 && config.grad_accum_dtype == Precision::Fp32);
    case Precision::Fp32:
      return stage > 0;
  }
  return true;
}

}  // namespace

void Stepper::update(StepResult& result, const optim::Rates& rates, bool finite) {
  const double norm = result.grad_norm, loss_scale = loss_scaler_.scale();
  result.loss_scale = loss_scale;
  result.skipped = !finite && skips_bad_norm(config_);
  result.scale_exhausted = !loss_scaler_.update(result.skipped);
  if (result.skipped) {
    result.bad_gradient = state_.first_bad_gradient();
    return;
  }
  // DeepSpeed divides by the scale after its update. So in the step that doubles the scale the
  // gradient is halved, unless clipping hides it. Recorded losses depend on that. torch's
  // GradScaler divides before it.
  const double divisor = config_.loss_scale.like_torch ? loss_scale : loss_scaler_.scale();
  double scale = (state_.gradients_are_local() ? 1 : averaging_.at_update) / divisor;
  if (config_.gradient_clipping > 0) {
    const double seen = norm * loss_scale / divisor;
    scale *= std::min(1.0, config_.gradient_clipping / (seen + 1e-6));
  }
  state_.step({.rates = rates, .updates = updates_, .grad_scale = scale});
  ++updates_;
}

std::vector<double> Stepper::weights_of(const StepInput& input) {
  std::vector<int64_t> targets, own;
  for (const auto& batch : input.micro_batches) {
    own.push_back(batch.targets().count);
    targets.push_back(batch.all_targets());
  }
  auto& collectives = state_.collectives();
  int64_t all = std::accumulate(own.begin(), own.end(), int64_t{0});
  if (options_.normalization == dsconfig::LossNormalization::Token && collectives.world() > 1) {
    if (input.targets) {
      all = *input.targets;
    } else {
      const at::Tensor sum =
          device::upload(at::full({1}, static_cast<double>(all), at::kDouble), device_);
      const auto work =
          collectives.all_reduce(sum, comm::Op::Sum, {comm::Traffic::Control, "targets"});
      all = static_cast<int64_t>(comm::on_host(*work, sum).item<double>());
    }
  }
  return optim::loss_weights(options_.normalization, targets, all,
                             {.ranks = state_.groups().data_ranks(),
                              .parts = state_.groups().sequence_ranks(),
                              .own = own});
}

std::vector<double> Stepper::kls_of(const StepInput& input) {
  std::vector<double> kls(input.micro_batches.size(), 0);
  if (!options_.objective.estimates_kl()) return kls;
  DSJ_CHECK(input.beside.size() == kls.size() && input.beside_answers.size() == kls.size());
  std::vector<at::Tensor> losses;
  for (size_t i = 0; i < kls.size(); ++i)
    losses.push_back(answer_losses(input.beside[i], input.beside_answers[i]));
  device::HostRead read(at::cat(losses));
  const double* loss = read.get().const_data_ptr<double>();
  const at::Tensor means = at::zeros({std::ssize(kls), 2}, at::kDouble);
  auto* mean = means.mutable_data_ptr<double>();
  for (size_t i = 0; i < kls.size(); ++i) {
    Answers answers = input.beside_answers[i];
    for (optim::Answer& answer : answers) answer.logp = -*loss++;
    const optim::Tally moved = optim::moved(answers);
    if (moved.count == 0) continue;
    mean[2 * i] = moved.sum / moved.count;
    mean[2 * i + 1] = 1;
  }
  auto& collectives = state_.collectives();
  const at::Tensor sums = device::upload(means, device_);
  const auto work = collectives.all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, "kl"});
  const at::Tensor all = comm::on_host(*work, sums);
  const auto* sum = all.const_data_ptr<double>();
  for (size_t i = 0; i < kls.size(); ++i) kls[i] = optim::kl_of({sum[2 * i], sum[2 * i + 1]});
  return kls;
}

double Stepper::balance_weight() const {
  return model_.experts.balance / static_cast<double>(micro_steps_);
}

StepResult Stepper::run(const StepInput& input) {
  take_schedule(std::ssize(input.micro_batches));
  const std::vector<double> weights = weights_of(input);
  const at::Tensor loss = at::zeros({}, at::TensorOptions(device_).dtype(at::kDouble));
  const bool judges = !input.answers.empty();
  DSJ_CHECK(judges == options_.objective.judges() &&
            (!judges || input.answers.size() == input.micro_batches.size()));
  const std::vector<double> kls = kls_of(input);
  tallies_.clear();
  MicroStep micro;
  const bool local = state_.update_method().keeps_gradients_local(updates_);
  state_.keep_gradients_local(local);
  state_.begin_step();
  for (const Action& action : schedules_.at(micro_steps_).actions) {
    if (const auto* batch = &input.micro_batches[action.micro_step]; micro.batch != batch) {
      micro = {};
      micro.batch = batch;
      micro.cut = cut_of(*batch);
      if (judges) micro.answers = &input.answers[static_cast<size_t>(action.micro_step)];
      micro.weight = weights[static_cast<size_t>(action.micro_step)];
      micro.kl = kls[static_cast<size_t>(action.micro_step)];
      if (model_.experts.balance > 0)
        micro.balance.emplace(model_.experts.count, loss_scaler_.scale() * balance_weight(),
                              device_);
      micro.dropout_key = options_.seed;
      const auto& ranks = state_.collectives();
      micro.step = input.step;
      micro.first_row =
          (action.micro_step * ranks.world() + ranks.rank()) * config_.micro_batch_size;
      const int64_t parts[] = {input.step, action.micro_step, ranks.rank()};
      for (const int64_t part : parts)
        micro.dropout_key = models::dropout_key(micro.dropout_key, part);
      micro.boundaries.resize(state_.units().size());
      micro.saved.resize(state_.units().size());
      micro.kept.resize(state_.units().size());
    }
    if (observer_) observer_->before(action);
    execute(action, micro, loss);
    if (observer_) observer_->after(action);
    tick();
  }
  if (observer_) observer_->before(observe::StepPart::FinishReductions);
  state_.finish_reductions();
  if (observer_) observer_->after(observe::StepPart::FinishReductions);
  if (observer_) observer_->before(observe::StepPart::Update);

  auto& collectives = state_.collectives();
  const at::Tensor squares = state_.owned_sum_of_squares().view({1});
  std::vector<double> numbers = {
      static_cast<double>(input.tokens), input.stop_requested ? 1.0 : 0.0,
      input.next_targets ? static_cast<double>(input.next_targets()) : 0.0};
  numbers.insert(numbers.end(), input.votes.begin(), input.votes.end());
  const size_t first_tally = 2 + numbers.size();  // after loss and squares
  for (const optim::Tally& tally : tallies_)
    numbers.insert(numbers.end(), {tally.sum, tally.count});
  const at::Tensor counts = at::tensor(numbers, at::kDouble);
  const at::Tensor sums = at::cat({loss.view({1}), squares, device::upload(counts, device_)});
  const auto summed = collectives.all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, "step"});
  summed->wait();
  device::HostRead read(local ? at::cat({sums, squares}) : sums);  // the only host read of a step
  const double* sum = read.get().const_data_ptr<double>();
  summed->wait();  // do not report a step whose sum was aborted
  const double world = collectives.world();
  StepResult result{.loss = sum[0] / world,
                    .grad_norm = std::sqrt(local ? sum[sums.numel()] : sum[1]) *
                                 (local ? 1 : averaging_.at_update) / loss_scaler_.scale(),
                    .finite = std::isfinite(sum[0]) && std::isfinite(sum[1]),
                    .tokens = static_cast<int64_t>(sum[2]),
                    .stop = sum[3] > 0,
                    .votes = {sum[5], sum[6], sum[7]}};
  const std::vector<optim::Tally> own_tallies = tallies_;
  for (size_t i = 0; i < tallies_.size(); ++i)
    tallies_[i] = {sum[first_tally + 2 * i], sum[first_tally + 2 * i + 1]};
  if (options_.objective.scores())
    join_extremes(options_.objective, collectives, device_, own_tallies, tallies_);
  if (judges) result.metrics = optim::metrics_of(options_.objective, tallies_);
  if (input.next_targets) result.next_targets = static_cast<int64_t>(sum[4]);
  if (input.before_update) input.before_update();
  update(result, input.rates, std::isfinite(sum[1]));
  state_.clear_grad();
  if (observer_) observer_->after(observe::StepPart::Update);
  state_.begin_step();  // of the next step: reads ahead during the rest
  return result;
}

}  // namespace dsj::train
