#include "engine/train/evaluate_answers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/comm/agree.h"
#include "engine/device/device.h"
#include "engine/train/micro_batch.h"

namespace dsj::train {
namespace {

/// Two rows of a token each, without a target: for a rank that has no batch of its own in a round.
data::Sample no_pair(const dsconfig::Objective& objective) {
  return {.input_ids = {0, 0},
          .labels = {data::kIgnoredLabel, data::kIgnoredLabel},
          .second = 1,
          .answer = objective.kind == dsconfig::Objective::Kind::Orpo ? 0 : -1};
}

/// Walks `rows` in rounds of a batch per rank. visit(first row of this rank's batch, its answers with
/// their log-probabilities). False: all ranks stop.
Result<bool> each_batch(Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows,
                        int64_t batch_size, at::Device device, const std::function<bool()>& stop,
                        const std::function<void(int64_t first, const Answers&)>& visit) {
  const int64_t batches = (rows.count + batch_size - 1) / batch_size;
  for (int64_t round = 0; round < batches; round += collectives.world()) {
    if (stop && comm::max_over_ranks(collectives, device, {stop() ? 1.0 : 0.0})[0] > 0)
      return false;
    const int64_t first = (round + collectives.rank()) * batch_size;
    std::vector<data::Sample> samples;
    for (int64_t i = first; i < std::min(first + batch_size, rows.count); ++i) {
      DSJ_TRY(data::Sample sample, rows.at(i));
      samples.push_back(std::move(sample));
    }
    if (samples.empty()) samples.push_back(no_pair(stepper.objective()));
    const data::Batch batch = data::collate(samples);
    Answers answers = answers_of(batch);
    device::HostRead read(stepper.answer_losses(on_device(batch, device), answers));
    const double* losses = read.get().const_data_ptr<double>();
    for (size_t i = 0; i < answers.size(); ++i) answers[i].logp = -losses[i];
    visit(first, answers);
  }
  return true;
}

at::Tensor summed_over_ranks(comm::Collectives& collectives, at::Device device,
                             const at::Tensor& host, const char* what) {
  const at::Tensor sums = device::upload(host, device);
  const auto work = collectives.all_reduce(sums, comm::Op::Sum, {comm::Traffic::Control, what});
  return comm::on_host(*work, sums).clone();
}

}  // namespace

Answers answers_of(const data::Batch& batch) {
  Answers answers;
  for (const data::AnswerPart& part : batch.parts)
    answers.push_back(
        {.reference = part.reference, .tokens = part.tokens, .targets = part.targets});
  return answers;
}

Result<EvalResult> evaluate_answers(Stepper& stepper, comm::Collectives& collectives,
                                    const EvalRows& rows, int64_t batch_size, at::Device device,
                                    const std::function<bool()>& stop) {
  const auto& names = optim::metric_names(stepper.objective());
  const int64_t metrics = std::ssize(names), columns = metrics + 3;
  const int64_t together = batch_size * collectives.world();
  const int64_t rounds = (rows.count + together - 1) / together;
  // Of each round, over its pairs: the sums of loss and metrics; pairs, targets.
  const at::Tensor sums = at::zeros({rounds, columns}, at::kDouble);
  auto* to = sums.mutable_data_ptr<double>();
  DSJ_TRY(const bool whole, each_batch(stepper, collectives, rows, batch_size, device, stop,
                                       [&](int64_t first, const Answers& answers) {
                                         const optim::Judged judged =
                                             optim::judge(stepper.objective(), answers);
                                         const auto pairs = static_cast<double>(judged.pairs);
                                         double* at = to + first / together * columns;
                                         for (const auto& [name, value] : judged.metrics)
                                           *at++ += pairs * value;
                                         *at++ += pairs * judged.loss;
                                         *at++ += pairs;
                                         for (const optim::Answer& answer : answers)
                                           *at += static_cast<double>(answer.targets);
                                       }));
  if (!whole) return EvalResult{.stopped = true};
  const at::Tensor all = summed_over_ranks(collectives, device, sums, "evaluate");
  const auto* from = all.const_data_ptr<double>();
  EvalResult result{.rows = rows.count};
  double loss = 0, pairs = 0, judged_rounds = 0;
  for (int64_t round = 0; round < rounds; ++round, from += columns) {
    const double own = from[metrics + 1];
    result.targets += static_cast<int64_t>(from[metrics + 2]);
    if (own == 0) continue;
    for (int64_t i = 0; i < metrics; ++i)
      result.metrics[names[static_cast<size_t>(i)]] += from[i] / own;
    loss += from[metrics];
    pairs += own;
    ++judged_rounds;
  }
  for (auto& [name, value] : result.metrics) value /= judged_rounds;
  if (pairs > 0) result.loss = loss / pairs;
  result.rows_without_target = rows.count - static_cast<int64_t>(pairs);
  return result;
}

Result<std::optional<ReferenceLogps>> reference_logps(Stepper& stepper,
                                                      comm::Collectives& collectives,
                                                      const data::Dataset& dataset,
                                                      int64_t batch_size, at::Device device,
                                                      const std::function<bool()>& stop) {
  const EvalRows rows{.dataset = &dataset, .first = 0, .count = dataset.rows()};
  ReferenceLogps logps(static_cast<size_t>(rows.count));
  DSJ_TRY(const bool whole, each_batch(stepper, collectives, rows, batch_size, device, stop,
                                       [&](int64_t first, const Answers& answers) {
                                         if (first >= rows.count) return;  // no batch of its own
                                         for (size_t i = 0; i < answers.size(); ++i)
                                           logps[static_cast<size_t>(first) + i / 2][i % 2] =
                                               answers[i].logp;
                                       }));
  if (!whole) return std::nullopt;
  sum_over_ranks(collectives, device, logps);
  return logps;
}

void sum_over_ranks(comm::Collectives& collectives, at::Device device, ReferenceLogps& logps) {
  if (logps.empty()) return;
  const at::Tensor host = at::from_blob(logps.data(), {std::ssize(logps), 2}, at::kDouble);
  host.copy_(summed_over_ranks(collectives, device, host, "reference"));
}

}  // namespace dsj::train
