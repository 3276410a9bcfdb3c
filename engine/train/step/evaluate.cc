#include "engine/train/step/evaluate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

#include "engine/comm/agree.h"
#include "engine/data/batches/batch.h"
#include "engine/device/device.h"
#include "engine/train/step/micro_batch.h"

namespace dsj::train {

using layout::Action;

void Stepper::forward_alone(const models::MicroBatch& batch, models::RouterBalance* balance,
                            const std::function<void(int unit, const at::Tensor& x)>& head) {
  const models::RowCut cut = cut_of(batch);
  models::LayerCall call{.rows = &batch.rows(),
                         .cut = batch.is_part() ? &cut : nullptr,
                         .pieces = options_.pieces,
                         .balance = balance};
  models::Carried carried;
  if (model_.carries()) call.carried = &carried;
  at::Tensor x;
  for (const Action& action : forward_schedule_.actions) {
    tick();
    switch (action.kind) {
      case Action::Kind::Gather:
        state_.gather(action.flat);
        break;
      case Action::Kind::Release:
        state_.release(action.flat);
        break;
      case Action::Kind::Forward:
        state_.wait_for(action.unit);
        if (const auto& unit = state_.units()[static_cast<size_t>(action.unit)];
            unit.before_layers) {
          const auto p = state_.unit(action.unit);
          if (unit.only_rows)
            models::layer_table_forward(p, model_, batch.input_ids(), carried);
          else
            models::layer_inputs_forward(p, model_, x, std::nullopt, options_.pieces, carried);
          break;
        }
        call.layer = action.unit - 1;
        if (action.unit > 0) call.rope = rope(action.unit, batch.all_rows());
        call.outputs =
            action.unit == model_.num_layers && !balance ? batch.last_outputs() : nullptr;
        x = action.unit == 0
                ? models::embedding_forward(state_.unit(0), model_, batch.input_ids(),
                                            {.rows = &batch.rows()})
                : layer_->forward(state_.unit(action.unit), x, call, /*saved=*/nullptr);
        break;
      case Action::Kind::Turn:
        state_.wait_for(action.unit);
        head(action.unit, x);
        break;
      case Action::Kind::Backward:
      case Action::Kind::Reduce:
        break;  // not in a forward schedule
    }
  }
}

Stepper::Evaluated Stepper::evaluate(const models::MicroBatch& batch) {
  Evaluated result;
  std::optional<models::RouterBalance> balance;
  if (model_.experts.balance > 0) balance.emplace(model_.experts.count, 0.0, device_);
  forward_alone(batch, balance ? &*balance : nullptr, [&](int unit, const at::Tensor& x) {
    if (model_.scored) {
      result = {models::head_scores(state_.unit(unit), model_, x, batch).sum(),
                batch.targets().count};
      return;
    }
    const auto head = models::head_loss(state_.unit(unit), model_, x, batch, options_.pieces,
                                        options_.token_loss);
    result = {head.loss_sum, head.targets};
    // The batch's mean includes the auxiliary loss, as in training.
    if (balance)
      result.loss_sum.add_(
          balance->loss().mul_(model_.experts.balance * static_cast<double>(head.targets)));
  });
  return result;
}

at::Tensor Stepper::answer_losses(const models::MicroBatch& batch, const Answers& answers) {
  at::Tensor losses;
  forward_alone(batch, nullptr, [&](int unit, const at::Tensor& x) {
    losses = head_losses(unit, x, batch, answers);
  });
  return losses;
}

namespace {

/// Whether any label has a token before it that can predict it.
bool has_target(const data::Sample& sample) {
  return std::any_of(sample.labels.begin() + 1, sample.labels.end(),
                     [](int32_t label) { return label != data::kIgnoredLabel; });
}

}  // namespace

Result<EvalResult> evaluate(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                            int64_t batch_size, at::Device device,
                            const std::function<bool()>& stop) {
  const int64_t batches = (rows.count + batch_size - 1) / batch_size;
  // By token, the batches that the ranks run in parallel have one mean; else each has its own.
  const bool by_token = stepper.normalization() == dsconfig::LossNormalization::Token;
  const zero::Groups& groups = stepper.groups();
  const int64_t together = by_token ? groups.data_ranks() : 1;
  const int64_t means = (batches + together - 1) / together;
  const at::Tensor losses = at::zeros({means}, at::TensorOptions(device).dtype(at::kDouble));
  // One column per mean. Exact in double: counts are far below 2^53.
  const at::Tensor counts = at::zeros({2, means}, at::kDouble);
  auto* targets = counts.mutable_data_ptr<double>();
  double* learned = targets + means;  // number of rows with targets
  for (int64_t round = 0; round < batches; round += groups.data_ranks()) {
    if (stop && comm::max_over_ranks(collectives, device, {stop() ? 1.0 : 0.0})[0] > 0)
      return EvalResult{.stopped = true};
    const int64_t own = round + groups.data_rank();
    std::vector<data::Sample> samples;
    for (int64_t i = own * batch_size; i < std::min((own + 1) * batch_size, rows.count); ++i) {
      DSJ_TRY(data::Sample sample, rows.at(i));
      samples.push_back(std::move(sample));
    }
    // Only one of the ranks that share a batch counts its rows.
    const auto with_target =
        groups.sequence_rank() == 0 ? std::ranges::count_if(samples, has_target) : 0;
    // A rank without a batch still takes part in the gathers.
    if (samples.empty()) samples.push_back({{0}, {data::kIgnoredLabel}});
    const auto got =
        stepper.evaluate(on_device(data::collate(samples), device, token_part(groups)));
    const int64_t mean = own / together;
    if (with_target > 0) learned[mean] += static_cast<double>(with_target);
    if (got.targets == 0) continue;
    losses[mean].add_(got.loss_sum);
    targets[mean] += static_cast<double>(got.targets);
  }
  const at::Tensor sums = at::cat({losses, device::upload(counts.view({-1}), device)});
  const auto work =
      collectives.all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, "evaluate"});
  const at::Tensor host = comm::on_host(*work, sums);
  const double* sum = host.const_data_ptr<double>();
  EvalResult result{.rows = rows.count};
  double loss = 0, weight = 0;
  for (int64_t i = 0; i < means; ++i) {
    if (sum[means + i] == 0) continue;
    loss += sum[2 * means + i] * sum[i] / sum[means + i];
    weight += sum[2 * means + i];
    result.targets += static_cast<int64_t>(sum[means + i]);
  }
  if (weight > 0) result.loss = loss / weight;
  result.rows_without_target = rows.count - static_cast<int64_t>(weight);
  return result;
}

}  // namespace dsj::train
