#include "engine/train/evaluate.h"

#include <ATen/ATen.h>

#include "engine/comm/agree.h"
#include "engine/data/batch.h"
#include "engine/device/device.h"
#include "engine/train/micro_batch.h"

namespace dsj::train {

using layout::Action;

Stepper::Evaluated Stepper::evaluate(const models::MicroBatch& batch) {
  models::LayerCall call{
      .rows = &batch.rows(), .rope = rope(batch.rows()), .pieces = options_.pieces};
  Evaluated result;
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
        call.layer = action.unit - 1;
        call.outputs = action.unit == model_.num_layers ? batch.last_outputs() : nullptr;
        x = action.unit == 0
                ? models::embedding_forward(state_.unit(0), model_, batch.input_ids(),
                                            {.rows = &batch.rows()})
                : layer_->forward(state_.unit(action.unit), x, call, /*saved=*/nullptr);
        break;
      case Action::Kind::Turn: {
        state_.wait_for(action.unit);
        const auto head =
            models::head_loss(state_.unit(action.unit), model_, x, batch, options_.pieces);
        result = {head.loss_sum, head.targets};
        break;
      }
      case Action::Kind::Backward:
      case Action::Kind::Reduce:
        break;  // not part of a forward schedule
    }
  }
  return result;
}

Result<EvalResult> evaluate(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                            int64_t batch_size, at::Device device) {
  const int64_t batches = (rows.count + batch_size - 1) / batch_size;
  const at::Tensor loss_rows = at::zeros({}, at::TensorOptions(device).dtype(at::kDouble));
  double targets = 0;  // exact in double: counts stay far below 2^53
  for (int64_t round = 0; round < batches; round += collectives.world()) {
    const int64_t own = round + collectives.rank();
    std::vector<data::Sample> samples;
    for (int64_t i = own * batch_size; i < std::min((own + 1) * batch_size, rows.count); ++i) {
      DSJ_TRY(data::Sample sample, rows.dataset->at(rows.first + i));
      samples.push_back(std::move(sample));
    }
    // A rank without a batch of its own still takes part in the gathers.
    const double weight = static_cast<double>(samples.size());
    if (samples.empty()) samples.push_back({{0}, {data::kIgnoredLabel}});
    const auto got = stepper.evaluate(on_device(data::collate(samples), device));
    if (got.targets > 0)
      loss_rows.add_(got.loss_sum.mul(weight).div_(static_cast<double>(got.targets)));
    targets += static_cast<double>(got.targets);
  }
  const at::Tensor sums =
      at::cat({loss_rows.view({1}), device::upload(at::full({1}, targets, at::kDouble), device)});
  const auto work =
      collectives.all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, "evaluate"});
  const at::Tensor host = comm::on_host(*work, sums);
  const double* sum = host.const_data_ptr<double>();
  return EvalResult{.loss = sum[0] / static_cast<double>(rows.count),
                    .rows = rows.count,
                    .targets = static_cast<int64_t>(sum[1])};
}

}  // namespace dsj::train
