// Small runs of the engine for its tests: a fixture model, seeded rows, some steps.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/files/posix_files.h"
#include "engine/train/step/step.h"
#include "engine/weights/weight_source.h"
#include "test_paths.h"
#include "tests/engine/support/fixtures.h"
#include "tests/engine/support/micro_batch.h"
#include "tests/engine/support/ranks.h"

namespace dsj::train {

using testing_support::fixture;

inline layout::ModelConfig fixture_model(const std::string& name) {
  const auto model = layout::read_model_config(fixture(name));
  EXPECT_TRUE(model) << model.error().to_string();
  return *model;
}

/// Row `index` of an endless data set: `length` ids below `vocab`; every third row starts with
/// targets masked.
inline std::vector<int64_t> row_ids(int64_t index, int64_t length, int64_t vocab) {
  std::vector<int64_t> ids;
  uint64_t state = 88172645463325252ull + static_cast<uint64_t>(index) * 2654435761u;
  for (int64_t i = 0; i < length; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    ids.push_back(static_cast<int64_t>(state % static_cast<uint64_t>(vocab)));
  }
  return ids;
}

/// The micro-batch of (step, micro-step, rank), as the sampler deals rows without shuffling.
inline models::MicroBatch micro_batch(int64_t step, int64_t micro_step, int rank, int world,
                                      const dsconfig::ResolvedConfig& config, int64_t vocab,
                                      int64_t length = 24, models::TokenPart part = {}) {
  std::vector<int64_t> ids, labels;
  for (int64_t row = 0; row < config.micro_batch_size; ++row) {
    const int64_t index =
        ((step * config.gradient_accumulation_steps + micro_step) * world + rank) *
            config.micro_batch_size +
        row;
    auto one = row_ids(index, length, vocab);
    ids.insert(ids.end(), one.begin(), one.end());
    if (index % 3 == 0) std::fill(one.begin(), one.begin() + length / 3, -100);
    labels.insert(labels.end(), one.begin(), one.end());
  }
  if (part.count > 1) {
    const std::vector<int64_t> lengths(static_cast<size_t>(config.micro_batch_size), length);
    return models::MicroBatch::part_of(at::tensor(ids), at::tensor(labels), lengths, part,
                                       at::kCPU);
  }
  auto rows = [&](const std::vector<int64_t>& values) {
    return at::tensor(values).view({config.micro_batch_size, length});
  };
  return testing_support::rectangle(rows(ids), rows(labels));
}

/// A row of an oracle's list, which begins again at its end, as a micro-batch.
inline models::MicroBatch row_of(const nlohmann::json& rows, int64_t index) {
  const nlohmann::json& row = rows[static_cast<size_t>(index) % rows.size()];
  const auto tensor = [](const nlohmann::json& ids) {
    return at::tensor(ids.get<std::vector<int64_t>>()).unsqueeze(0);
  };
  return testing_support::rectangle(tensor(row["input_ids"]), tensor(row["labels"]));
}

/// The optimizer and the clipping that an oracle stepped with.
inline void take_adamw(const nlohmann::json& adamw, dsconfig::ResolvedConfig& config) {
  config.optimizer.lr = adamw["lr"];
  config.optimizer.beta1 = adamw["betas"][0];
  config.optimizer.beta2 = adamw["betas"][1];
  config.optimizer.eps = adamw["eps"];
  config.optimizer.weight_decay = adamw["weight_decay"];
  config.gradient_clipping = adamw["max_grad_norm"];
}

/// The targets of all ranks' micro_batch() of a step.
inline int64_t step_targets(int64_t step, int64_t micro_steps, int world,
                            const dsconfig::ResolvedConfig& config, int64_t length = 24) {
  const int64_t first = step * config.gradient_accumulation_steps * world * config.micro_batch_size;
  const int64_t count = micro_steps * world * config.micro_batch_size;
  int64_t targets = 0;
  for (int64_t index = first; index < first + count; ++index)
    targets += index % 3 == 0 ? length - std::max<int64_t>(1, length / 3) : length - 1;
  return targets;
}

struct SmallRun {
  std::string model = "tiny-qwen2";
  bool auxiliary_loss = true;  ///< false: that of the model's experts is left out
  int world = 2;
  int64_t steps = 4;
  bool recompute = false;
  dsconfig::ResolvedConfig config;
  std::optional<LoraArgs> lora;       ///< as a user writes it
  std::optional<LoraArgs> part = {};  ///< without lora, what is trained (layout::all_but)
  zero::OffloadHost host = {};
  layout::PieceRule pieces = {};
  dsconfig::LossNormalization normalization = dsconfig::LossNormalization::Token;
  dsconfig::Objective objective = {};
  /// Micro-steps of a step; empty: gradient_accumulation_steps.
  std::function<int64_t(int64_t step)> micro_steps = {};
  bool splits() const { return plan::rank_groups(config, world).splits(); }
  int64_t micro_steps_of(int64_t step) const {
    return micro_steps ? micro_steps(step) : config.gradient_accumulation_steps;
  }
  /// With recompute: where a rank's layer inputs wait; empty: where they are.
  std::function<std::unique_ptr<zero::LayerInputs>(const layout::ModelConfig&)> inputs = {};
};

inline std::optional<LoraArgs> resolved_lora(const SmallRun& run) {
  if (run.part) return run.part;
  if (!run.lora) return std::nullopt;
  auto lora = layout::resolve_lora(fixture_model(run.model), *run.lora);
  EXPECT_TRUE(lora) << lora.error().to_string();
  return *lora;
}

inline dsconfig::ResolvedConfig small_config(int stage, int64_t micro = 2,
                                             int64_t accumulation = 1) {
  dsconfig::ResolvedConfig config;
  config.micro_batch_size = micro;
  config.gradient_accumulation_steps = accumulation;
  config.zero.stage = stage;
  config.zero.param_persistence_threshold = 64;
  config.zero.overlap_comm = stage == 3;
  config.optimizer.lr = 2e-3;
  config.optimizer.beta2 = 0.95;
  config.optimizer.weight_decay = 0.1;
  return config;
}

inline layout::ModelConfig model_of(const SmallRun& run) {
  layout::ModelConfig model = fixture_model(run.model);
  if (!run.auxiliary_loss) model.experts.balance = 0;
  return model;
}

/// One rank of a small run: the state with the fixture's weights, and the stepper.
struct Rank {
  layout::ModelConfig model;
  dsconfig::ResolvedConfig config;
  std::function<int64_t(int64_t step)> micro_steps;
  zero::RunGroups groups;
  zero::ModelState state;
  std::unique_ptr<zero::LayerInputs> inputs;
  Stepper stepper;
  comm::Collectives& collectives;

  Rank(const SmallRun& run, comm::Collectives& group)
      : model(model_of(run)),
        config(run.config),
        micro_steps([run](int64_t step) { return run.micro_steps_of(step); }),
        groups(*zero::RunGroups::make(group, plan::rank_groups(config, group.world()))),
        state(model, config, at::kCPU, groups.groups(), resolved_lora(run), run.host),
        inputs(run.inputs ? run.inputs(model) : nullptr),
        stepper(model, config,
                {.recompute = run.recompute,
                 .normalization = run.normalization,
                 .objective = run.objective,
                 .pieces = run.pieces,
                 .inputs = inputs.get()},
                state, at::kCPU),
        collectives(group) {}

  void load(const std::string& name) {
    PosixFiles files;
    const auto source = weights::WeightSource::open(files, fixture(name));
    ASSERT_TRUE(source) << source.error().to_string();
    const auto loaded = state.load(*source);
    ASSERT_TRUE(loaded) << loaded.error().to_string();
  }

  StepResult step(int64_t index) {
    std::vector<models::MicroBatch> batches;
    const zero::Groups& of = groups.groups();
    for (int64_t i = 0; i < micro_steps(index); ++i) {
      batches.push_back(micro_batch(index, i, of.data_rank(), of.data_ranks(), config,
                                    model.vocab_size, 24,
                                    {of.sequence_rank(), of.sequence_ranks()}));
    }
    return stepper.run(
        {.micro_batches = batches,
         .step = index,
         .rates = {.lr = config.optimizer.lr, .previous_lr = config.optimizer.lr},
         .tokens = 1,
         .targets = step_targets(index, micro_steps(index), of.data_ranks(), config)});
  }
};

struct RunResult {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> weights;  ///< after the last step, fp32
};

inline RunResult run_small(const SmallRun& run) {
  RunResult result;
  testing_support::run_ranks(
      run.world,
      [&](comm::Collectives& collectives, memory::Ledger&) {
        Rank rank(run, collectives);
        rank.load(run.model);
        for (int64_t step = 0; step < run.steps; ++step) {
          const auto done = rank.step(step);
          if (collectives.rank() != 0) continue;
          result.losses.push_back(done.loss);
          result.norms.push_back(done.grad_norm);
        }
        // What outlives the rank must not be counted by its ledger.
        memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
        rank.state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
          result.weights[slot.name] = value.to(at::kFloat).clone();
        });
      },
      "auto", run.splits());
  return result;
}

/// The largest relative difference of a loss.
inline double apart(const std::vector<double>& losses, const std::vector<double>& expected) {
  EXPECT_EQ(losses.size(), expected.size());
  double most = 0;
  for (size_t i = 0; i < std::min(losses.size(), expected.size()); ++i)
    most = std::max(most, std::abs(losses[i] / expected[i] - 1));
  return most;
}
inline double apart(const RunResult& got, const RunResult& want) {
  return apart(got.losses, want.losses);
}

/// Losses within `tolerance`, norms within ten times that, relative.
inline void expect_near_steps(const RunResult& got, const RunResult& want, double tolerance) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t i = 0; i < want.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i], want.losses[i], tolerance * want.losses[i]) << "step " << i;
    EXPECT_NEAR(got.norms[i], want.norms[i], 10 * tolerance * want.norms[i]) << "step " << i;
  }
}

/// Sets the masters of the parameters that `picks` takes to their bf16.
inline void round_masters(Rank& rank,
                          const std::function<bool(const std::string& parameter)>& picks) {
  for (size_t f = 0; f < rank.state.plan().flats.size(); ++f) {
    zero::Flat& flat = rank.state.flat(static_cast<int>(f));
    ASSERT_TRUE(flat.load_state(false, [&](int, const zero::Flat::HostRange& range) {
      if (!picks(range.parameter)) return Status{};
      for (float& value : range.data) value = static_cast<float>(at::BFloat16(value));
      return Status{};
    }));
    flat.publish();
  }
}

/// Two steps. `look` sees every rank after them: the peaks and the calls that were counted are the second step's.
inline void measure_ranks(const SmallRun& run,
                          const std::function<void(Rank&, const memory::Ledger&)>& look) {
  testing_support::run_ranks(
      run.world,
      [&](comm::Collectives& group, memory::Ledger& ledger) {
        Rank rank(run, group);
        rank.load(run.model);
        rank.step(0);
        ledger.reset_peaks();
        rank.groups.reset_counters();
        rank.step(1);
        look(rank, ledger);
      },
      "auto", run.splits());
}
/// The same of rank 0, with whole parameters in every unit.
inline void measure_a_step(const SmallRun& run,
                           const std::function<void(Rank&, const memory::Ledger&)>& look) {
  measure_ranks(run, [&](Rank& rank, const memory::Ledger& ledger) {
    for (size_t u = 0; u < rank.state.units().size(); ++u) rank.state.wait_for(static_cast<int>(u));
    if (rank.collectives.rank() == 0) look(rank, ledger);
  });
}

}  // namespace dsj::train
