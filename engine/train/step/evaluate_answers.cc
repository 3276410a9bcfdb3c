#include "engine/train/step/evaluate_answers.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/comm/agree.h"
#include "engine/device/device.h"
#include "engine/train/step/extremes.h"
#include "engine/train/step/micro_batch.h"

namespace dsj::train {
namespace {

/// One-token rows without a target, for a rank that has no batch in a round.
data::Sample no_answers(const dsconfig::Objective& objective) {
  using Kind = dsconfig::Objective::Kind;
  if (objective.kind == Kind::Kto) {
    data::Sample one{.input_ids = {0}, .labels = {data::kIgnoredLabel}};
    one.good = true;
    if (objective.estimates_kl()) one.beside = {one};
    return one;
  }
  data::Sample pair{.input_ids = {0, 0},
                    .labels = {data::kIgnoredLabel, data::kIgnoredLabel},
                    .second = 1,
                    .answer = objective.kind == Kind::Orpo ? 0 : -1};
  if (objective.scores()) pair.margin = 0;
  return pair;
}

/// A batch's answers with their log-probabilities.
Answers answers_seen(Stepper& stepper, const data::Batch& batch, at::Device device) {
  Answers answers = answers_of(batch);
  device::HostRead read(stepper.answer_losses(on_device(batch, device), answers));
  const double* losses = read.get().const_data_ptr<double>();
  for (size_t i = 0; i < answers.size(); ++i) answers[i].logp = -losses[i];
  return answers;
}

/// Walks `rows` in rounds of one batch per rank. Calls visit(first row of this rank's batch, its
/// answers and the mismatched ones, with log-probabilities). Returns false if all ranks stop.
Result<bool> each_batch(
    Stepper& stepper, comm::Collectives& collectives, const EvalRows& rows, int64_t batch_size,
    at::Device device, const std::function<bool()>& stop,
    const std::function<void(int64_t first, Answers answers, const Answers& beside)>& visit) {
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
    if (samples.empty()) samples.push_back(no_answers(stepper.objective()));
    const data::Batch batch = data::collate(samples);
    Answers beside;
    for (const data::Batch& other : batch.beside) beside = answers_seen(stepper, other, device);
    visit(first, answers_seen(stepper, batch, device), beside);
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
    answers.push_back({.reference = part.reference,
                       .tokens = part.tokens,
                       .targets = part.targets,
                       .good = part.good,
                       .margin = part.margin});
  return answers;
}

Result<EvalResult> evaluate_answers(Stepper& stepper, comm::Collectives& collectives,
                                    const EvalRows& rows, int64_t batch_size, at::Device device,
                                    const std::function<bool()>& stop) {
  const dsconfig::Objective& objective = stepper.objective();
  const int64_t together = batch_size * collectives.world();
  const int64_t rounds = (rows.count + together - 1) / together;
  std::vector<Answers> seen;  // this rank's, per round
  const at::Tensor moved = at::zeros({rounds, 2}, at::kDouble);
  auto* mean = moved.mutable_data_ptr<double>();
  DSJ_TRY(const bool whole, each_batch(stepper, collectives, rows, batch_size, device, stop,
                                       [&](int64_t, Answers answers, const Answers& beside) {
                                         const optim::Tally own = optim::moved(beside);
                                         if (own.count > 0) {
                                           mean[2 * seen.size()] = own.sum / own.count;
                                           mean[2 * seen.size() + 1] = 1;
                                         }
                                         seen.push_back(std::move(answers));
                                       }));
  if (!whole) return EvalResult{.stopped = true};
  at::Tensor means = moved;
  if (objective.estimates_kl()) means = summed_over_ranks(collectives, device, moved, "kl");
  const auto* sum = means.const_data_ptr<double>();
  const int64_t tallies = std::ssize(optim::tally_names(objective)), columns = 2 * tallies + 3;
  // Per round: sum and count of each tally; the loss over judged items, their number, targets.
  const at::Tensor own = at::zeros({rounds, columns}, at::kDouble);
  auto* to = own.mutable_data_ptr<double>();
  for (size_t round = 0; round < seen.size(); ++round) {
    const double kl = optim::kl_of({sum[2 * round], sum[2 * round + 1]});
    const optim::Judged judged = optim::judge(objective, seen[round], kl);
    const auto count = static_cast<double>(judged.judged);
    for (const optim::Tally& tally : judged.tallies) *to++ = tally.sum, *to++ = tally.count;
    *to++ = count * judged.loss;
    *to++ = count;
    for (const optim::Answer& answer : seen[round]) *to += static_cast<double>(answer.targets);
    ++to;
  }
  const at::Tensor all = summed_over_ranks(collectives, device, own, "evaluate");
  const auto* from = all.const_data_ptr<double>();
  EvalResult result{.rows = rows.count};
  std::vector<optim::Tally> of_rounds;
  double loss = 0, judged = 0;
  for (int64_t round = 0; round < rounds; ++round, from += columns) {
    result.targets += static_cast<int64_t>(from[columns - 1]);
    for (int64_t i = 0; i < tallies; ++i) of_rounds.push_back({from[2 * i], from[2 * i + 1]});
    if (from[columns - 2] == 0) continue;
    loss += from[columns - 3];
    judged += from[columns - 2];
  }
  if (objective.scores()) {
    std::vector<optim::Tally> mine;
    from = own.const_data_ptr<double>();
    for (int64_t round = 0; round < rounds; ++round, from += columns)
      for (int64_t i = 0; i < tallies; ++i) mine.push_back({from[2 * i], from[2 * i + 1]});
    join_extremes(objective, collectives, device, mine, of_rounds);
  }
  result.metrics = optim::metrics_of(objective, of_rounds);
  if (judged > 0) result.loss = loss / judged;
  result.rows_without_target = rows.count - static_cast<int64_t>(judged);
  return result;
}

Result<std::optional<ReferenceLogps>> reference_logps(Stepper& stepper,
                                                      comm::Collectives& collectives,
                                                      const data::Dataset& dataset,
                                                      int64_t batch_size, at::Device device,
                                                      const std::function<bool()>& stop) {
  const EvalRows rows{.dataset = &dataset, .first = 0, .count = dataset.rows()};
  ReferenceLogps logps(static_cast<size_t>(rows.count));
  const bool pairs = stepper.objective().pairs();
  DSJ_TRY(const bool whole,
          each_batch(stepper, collectives, rows, batch_size, device, stop,
                     [&](int64_t first, const Answers& answers, const Answers& beside) {
                       if (first >= rows.count) return;  // this rank has no batch
                       const auto row = static_cast<size_t>(first);
                       for (size_t i = 0; i < answers.size(); ++i)
                         logps[row + (pairs ? i / 2 : i)][pairs ? i % 2 : 0] = answers[i].logp;
                       for (size_t i = 0; i < beside.size(); ++i)
                         logps[row + i][1] = beside[i].logp;
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
