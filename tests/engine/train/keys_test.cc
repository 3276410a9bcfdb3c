// Keys of ds_config that docs/ds_config.md calls working: the engine follows the field of
// ResolvedConfig that each became. A run with another value must differ in what the key is about,
// and where an oracle exists, equal it.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "job/plan/zero_plan.h"
#include "tests/engine/support/late_collectives.h"
#include "tests/engine/train/plain_run.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;
using memory::Class;

/// Rank 0's peaks and counters in the second step.
struct Seen {
  std::map<Class, int64_t> peak, live;  ///< live: after the step
  comm::Counters counters;
  int64_t elements = 0;  ///< of all flats, with padding
};

Seen look(const SmallRun& run, bool late = false) {
  Seen seen;
  testing_support::run_ranks(run.world, [&](comm::Collectives& own, memory::Ledger& ledger) {
    testing_support::LateCollectives last(own);
    comm::Collectives& group = late ? last : own;
    Rank rank(run, group);
    rank.load(run.model);
    rank.step(0);
    for (size_t u = 0; u < rank.state.units().size(); ++u) rank.state.wait_for(int(u));
    ledger.reset_peaks();
    group.reset_counters();
    rank.step(1);
    for (size_t u = 0; u < rank.state.units().size(); ++u) rank.state.wait_for(int(u));
    if (group.rank() != 0) return;
    for (const Class klass :
         {Class::Parameters, Class::Gradients, Class::Optimizer, Class::Buckets}) {
      seen.peak[klass] = ledger.peak(klass);
      seen.live[klass] = ledger.live(klass);
    }
    seen.counters = group.counters();
    for (const auto& flat : rank.state.plan().flats) seen.elements += flat.numel();
  });
  return seen;
}

SmallRun bf16_run(int stage) {
  SmallRun run{.config = small_config(stage)};
  run.config.precision = run.config.communication_dtype = run.config.grad_accum_dtype =
      Precision::Bf16;
  return run;
}

/// The largest relative distance of a parameter. A key's bias is left out: softmax does not see it,
/// its gradient is rounding, and Adam makes a full step of that.
double distance(const RunResult& a, const RunResult& b) {
  double most = 0;
  for (const auto& [name, value] : a.weights)
    if (!name.ends_with("k_proj.bias"))
      most = std::max(most, (value - b.weights.at(name)).norm().item<double>() /
                                (value.norm().item<double>() + 1e-12));
  return most;
}

// ---- the batch

TEST(EngineKeys, BatchKeysDecideTheRowsOfAStep) {
  // Four rows a step, three ways: the same rows, so the same first gradient norm and loss.
  const auto run = [](int64_t micro, int64_t accumulation, int world) {
    return run_small({.world = world, .steps = 1, .config = small_config(0, micro, accumulation)});
  };
  const auto whole = run(4, 1, 1), split = run(2, 2, 1), ranks = run(2, 1, 2), fewer = run(2, 1, 1);
  for (const auto& other : {split, ranks}) expect_near_steps(other, whole, 1e-6);
  EXPECT_GT(std::abs(fewer.norms[0] - split.norms[0]), 1e-3 * split.norms[0]);
}

// ---- the optimizer

TEST(EngineKeys, OptimizerKeysMoveTheWeightsAsTheFormulaSays) {
  SmallRun base{.world = 1, .config = small_config(0)};
  base.config.optimizer.eps = 1e-3;  // without it AdamW does not see how long a gradient is
  const RunResult from_base = run_small(base);
  const std::pair<const char*, std::function<void(dsconfig::ResolvedConfig&)>> changes[] = {
      {"gradient_clipping", [](auto& c) { c.gradient_clipping = 0.05; }},
      {"no clipping", [](auto& c) { c.gradient_clipping = 0; }},
      {"lr", [](auto& c) { c.optimizer.lr = 5e-3; }},
      {"beta1", [](auto& c) { c.optimizer.beta1 = 0.5; }},
      {"beta2", [](auto& c) { c.optimizer.beta2 = 0.6; }},
      {"eps", [](auto& c) { c.optimizer.eps = 1e-2; }},
      {"weight_decay", [](auto& c) { c.optimizer.weight_decay = 1.5; }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    SmallRun run = base;
    change(run.config);
    const RunResult engine = run_small(run), plain = run_plain(run);
    EXPECT_GT(distance(engine, from_base), 1e-3) << "this value shows nothing";
    EXPECT_LT(distance(engine, plain), 1e-4);
  }
}

TEST(EngineKeys, AdamWModeAndBiasCorrectionMoveTheWeights) {
  const SmallRun base{.world = 1, .config = small_config(0)};
  SmallRun coupled = base, biased = base;
  coupled.config.optimizer.decoupled_weight_decay = false;
  biased.config.optimizer.bias_correction = false;
  const RunResult plain = run_small(base);
  EXPECT_GT(distance(run_small(coupled), plain), 1e-4);
  EXPECT_GT(distance(run_small(biased), plain), 1e-3);
}

// ---- ZeRO

TEST(EngineKeys, StageDecidesWhatIsSharded) {
  std::vector<Seen> stages;
  for (int stage = 0; stage <= 3; ++stage) {
    SmallRun run{.config = small_config(stage)};
    run.config.zero.param_persistence_threshold = 0;
    run.config.zero.overlap_comm = false;
    stages.push_back(look(run));
  }
  // fp32, two ranks: the master is the working copy, or at stage 3 the shard.
  EXPECT_EQ(stages[0].live[Class::Optimizer], 2 * 4 * stages[0].elements);
  EXPECT_EQ(stages[1].live[Class::Optimizer], 4 * stages[1].elements);
  EXPECT_EQ(stages[2].live[Class::Optimizer], 4 * stages[2].elements);
  EXPECT_EQ(stages[3].live[Class::Optimizer], 3 * 4 * stages[3].elements / 2);
  EXPECT_EQ(stages[1].live[Class::Parameters], 4 * stages[1].elements);
  EXPECT_EQ(stages[3].live[Class::Parameters], 0);
  EXPECT_LT(stages[2].peak[Class::Gradients], stages[1].peak[Class::Gradients] + 1);
  EXPECT_LT(stages[2].peak[Class::Gradients], stages[0].peak[Class::Gradients]);
}

TEST(EngineKeys, OverlapKeepsReductionsUnderWay) {
  const auto gradients = [](bool overlap) {
    SmallRun run{.config = small_config(2)};
    run.config.zero.overlap_comm = overlap;
    return look(run, true).peak[Class::Gradients];
  };
  EXPECT_GT(gradients(true), gradients(false)) << "what is under way is still held";
}

TEST(EngineKeys, ModelPersistenceThresholdCapsTheirSum) {
  const auto persisted = [](int64_t cap) {
    SmallRun run{.config = small_config(3)};
    run.config.zero.param_persistence_threshold = 64;
    run.config.zero.model_persistence_threshold = cap;
    return look(run).live[Class::Parameters];
  };
  const int64_t all = persisted(INT64_MAX), some = persisted(100), none = persisted(0);
  EXPECT_EQ(none, 0);
  EXPECT_GT(some, 0);
  EXPECT_LT(some, all);
}

// ---- precision

TEST(EngineKeys, Bf16HalvesTheWorkingCopy) {
  SmallRun fp32{.config = small_config(1)};
  const Seen wide = look(fp32), narrow = look(bf16_run(1));
  EXPECT_EQ(narrow.live.at(Class::Parameters) * 2, wide.live.at(Class::Parameters));
  EXPECT_EQ(narrow.live.at(Class::Optimizer), wide.live.at(Class::Optimizer) / 2 * 3)
      << "and there is an fp32 master beside it";
}

TEST(EngineKeys, Bf16OverflowIsSkippedOnlyWhenChecked) {
  for (const bool checked : {true, false}) {
    SmallRun run = bf16_run(0);
    run.world = 1;
    run.config.bf16_check_grad_overflow = checked;
    testing_support::run_ranks(1, [&](comm::Collectives& group, memory::Ledger&) {
      Rank rank(run, group);
      rank.load(run.model);
      rank.state.unit(0).weight(0).fill_(std::numeric_limits<float>::infinity());
      const StepResult result = rank.step(0);
      EXPECT_FALSE(std::isfinite(result.grad_norm));
      EXPECT_EQ(result.skipped, checked);
      EXPECT_EQ(rank.stepper.updates(), checked ? 0 : 1);
    });
  }
}

TEST(EngineKeys, GradAccumDtypeIsTheSumsType) {
  for (const int stage : {0, 1, 2, 3}) {
    SmallRun narrow = bf16_run(stage), wide = bf16_run(stage);
    narrow.config.gradient_accumulation_steps = wide.config.gradient_accumulation_steps = 2;
    wide.config.grad_accum_dtype = Precision::Fp32;
    EXPECT_GT(look(wide).peak[Class::Gradients], look(narrow).peak[Class::Gradients])
        << "stage " << stage;
  }
}

TEST(EngineKeys, CommunicationDataTypeIsWhatTravels) {
  for (const int stage : {0, 1, 2, 3}) {
    SmallRun narrow = bf16_run(stage), wide = bf16_run(stage);
    wide.config.communication_dtype = Precision::Fp32;
    const auto sent = [](const SmallRun& run) {
      return look(run).counters.of(comm::Traffic::Gradients);
    };
    const auto two = sent(narrow), four = sent(wide);
    EXPECT_EQ(two.bytes, 2 * two.elements) << "stage " << stage;
    EXPECT_EQ(four.bytes, 4 * four.elements) << "stage " << stage;
    EXPECT_EQ(four.elements, two.elements);
  }
}

}  // namespace
}  // namespace dsj::train
