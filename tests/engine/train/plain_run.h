// The same small run as engine/train's tests make (support.h), by plain libtorch: the oracle of the
// stages and of the keys that change an update.
#pragma once

#include <functional>

#include "tests/engine/support/plain_qwen2.h"
#include "tests/engine/train/support.h"

namespace dsj::train {

/// The micro-batch of (step, micro-step, rank), of rows of one length.
using PlainBatch = std::function<models::MicroBatch(int64_t, int64_t, int)>;

/// Which tokens a layer sees in (step, micro-step, rank): PlainQwen2::Kept.
using PlainKept =
    std::function<at::Tensor(int64_t layer, int64_t step, int64_t micro_step, int rank)>;

/// What a micro-batch with `targets` of the step's counts in the step's loss (docs/data.md).
inline double plain_weight(const SmallRun& run, int64_t step, int64_t targets, int64_t of_rank,
                           int64_t of_all) {
  const auto share = [&](int64_t whole) {
    return static_cast<double>(targets) / static_cast<double>(whole);
  };
  switch (run.normalization) {
    case dsconfig::LossNormalization::Token:
      return share(of_all);
    case dsconfig::LossNormalization::Rank:
      return share(of_rank) / run.world;
    case dsconfig::LossNormalization::MicroBatch:
      break;
  }
  return 1 / static_cast<double>(run.world * run.micro_steps_of(step));
}

/// Losses of the plain loop on these global batches.
inline RunResult run_plain(const SmallRun& run, const PlainBatch& batch_of,
                           const PlainKept& kept_of = {}) {
  RunResult result;
  std::map<std::string, at::Tensor> values;
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    SmallRun one = run;
    one.config.zero.stage = 0;
    Rank rank(one, collectives);
    rank.load(run.model);
    memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
    rank.state.visit_weights(
        [&](const layout::Slot& slot, const at::Tensor& v) { values[slot.name] = v.clone(); });
  });
  const auto model = fixture_model(run.model);
  testing_support::PlainQwen2 plain(model, values);
  const auto& o = run.config.optimizer;
  for (int64_t step = 0; step < run.steps; ++step) {
    double loss = 0;
    std::vector<int64_t> of_rank(static_cast<size_t>(run.world));
    int64_t of_all = 0;
    for (int64_t micro = 0; micro < run.micro_steps_of(step); ++micro) {
      for (int rank = 0; rank < run.world; ++rank) {
        const int64_t count = batch_of(step, micro, rank).targets().count;
        of_rank[static_cast<size_t>(rank)] += count;
        of_all += count;
      }
    }
    for (int64_t micro = 0; micro < run.micro_steps_of(step); ++micro) {
      for (int rank = 0; rank < run.world; ++rank) {
        const auto batch = batch_of(step, micro, rank);
        if (kept_of) plain.keep([&](int64_t layer) { return kept_of(layer, step, micro, rank); });
        const auto rows = [&](const at::Tensor& tokens) {
          return tokens.view({run.config.micro_batch_size, -1});
        };
        const double weight = plain_weight(run, step, batch.targets().count,
                                           of_rank[static_cast<size_t>(rank)], of_all);
        const at::Tensor part = plain.loss(rows(batch.input_ids()), rows(batch.labels())) * weight;
        part.backward();
        loss += part.item<double>();
      }
    }
    result.losses.push_back(loss);
    result.norms.push_back(plain.step(o.lr, o.beta1, o.beta2, o.eps, o.weight_decay,
                                      run.config.gradient_clipping, o.decays_all));
  }
  for (const auto& [name, value] : plain.weights()) result.weights[name] = value.detach();
  return result;
}

/// On the batches of run_small().
inline RunResult run_plain(const SmallRun& run) {
  const int64_t vocab = fixture_model(run.model).vocab_size;
  return run_plain(run, [&](int64_t step, int64_t micro, int rank) {
    return micro_batch(step, micro, rank, run.world, run.config, vocab);
  });
}

}  // namespace dsj::train
