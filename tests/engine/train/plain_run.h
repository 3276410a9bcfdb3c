// The same small run as engine/train's tests make (support.h), by plain libtorch: the oracle of the
// stages and of the keys that change an update.
#pragma once

#include "tests/engine/support/plain_qwen2.h"
#include "tests/engine/train/support.h"

namespace dsj::train {

/// Losses of the plain loop on the same global batches: mean over the micro-batches of all ranks.
inline RunResult run_plain(const SmallRun& run) {
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
  const int64_t parts = run.world * run.config.gradient_accumulation_steps;
  for (int64_t step = 0; step < run.steps; ++step) {
    double loss = 0;
    for (int64_t micro = 0; micro < run.config.gradient_accumulation_steps; ++micro) {
      for (int rank = 0; rank < run.world; ++rank) {
        const auto batch = micro_batch(step, micro, rank, run.world, run.config, model.vocab_size);
        const at::Tensor part =
            plain.loss(batch.input_ids, batch.labels) / static_cast<double>(parts);
        part.backward();
        loss += part.item<double>();
      }
    }
    result.losses.push_back(loss);
    result.norms.push_back(
        plain.step(o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, run.config.gradient_clipping));
  }
  for (const auto& [name, value] : plain.weights()) result.weights[name] = value.detach();
  return result;
}

}  // namespace dsj::train
