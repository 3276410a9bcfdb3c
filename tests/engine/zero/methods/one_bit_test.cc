// Compressed steps over a small model's flats, against a slow form of all ranks.
#include "engine/zero/methods/one_bit.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "engine/zero/model_state.h"
#include "job/plan/memory_model.h"
#include "tests/engine/support/one_bit_oracle.h"
#include "tests/engine/support/ranks.h"
#include "tests/engine/zero/one_bit_steps.h"

namespace dsj::zero {
namespace {

using dsconfig::Precision;
using testing_support::drawn;
using testing_support::one_bit_step;
using testing_support::OneBitAdamOracle;
using testing_support::OneBitLambOracle;
using testing_support::rate;
using testing_support::small_model;
using testing_support::ZeroOneAdamOracle;

constexpr int kFreeze = 20;

dsconfig::ResolvedConfig one_bit_config(int stage) {
  dsconfig::ResolvedConfig config;
  config.zero.stage = stage;
  config.zero.reduce_bucket_size = 200;  // several chunks per flat
  config.optimizer.kind = dsconfig::OptimizerKind::OneBitAdam;
  config.optimizer.freeze_step = kFreeze;
  config.optimizer.eps = 1e-3;
  config.optimizer.weight_decay = 0.01;
  config.gradient_accumulation_steps = 1;
  return config;
}

at::Tensor gradient_of(int64_t step, int rank, const layout::Slot& slot, size_t index) {
  return drawn(static_cast<uint32_t>(step * 10'000 + rank * 1000) + static_cast<uint32_t>(index),
               slot.numel);
}

/// One step. `zero`: the gradient with this number is 0.
void step(ModelState& state, int64_t number, double lr, int64_t zero = -1) {
  one_bit_step(state, number, lr, [&](const layout::Slot& slot, size_t index) {
    const at::Tensor gradient = gradient_of(number, state.collectives().rank(), slot, index);
    return static_cast<int64_t>(index) == zero ? at::zeros_like(gradient) : gradient;
  });
}

/// 60 steps of the engine beside an oracle per parameter: `make` makes it, `parameter` is its result
/// for rank 0.
template <typename Oracle>
void compare(int world, const dsconfig::ResolvedConfig& config,
             const std::function<Oracle(int64_t numel, int64_t padded)>& make,
             const std::function<at::Tensor(const Oracle&)>& parameter) {
  SCOPED_TRACE("world " + std::to_string(world) + " stage " + std::to_string(config.zero.stage));
  testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
    ModelState state(small_model(), config, at::kCPU, collectives);
    const auto plan = plan::one_bit_plan(state.units(), state.plan(), config, world);
    std::vector<Oracle> oracles;
    std::vector<std::string> names;
    for (const auto& flat : state.plan().flats)
      for (const auto& slot : flat.slots()) {
        const auto vector =
            std::ranges::find(plan.vectors, slot.name, &plan::CompressedVector::name);
        ASSERT_TRUE(vector != plan.vectors.end() && vector->padded(world) >= slot.numel);
        oracles.push_back(make(slot.numel, vector->padded(world)));
        names.push_back(slot.name);
      }
    for (int64_t number = 0; number < 60; ++number) {
      step(state, number, rate(number));
      if (collectives.rank() != 0) continue;
      size_t index = 0;
      for (const auto& flat : state.plan().flats)
        for (const auto& slot : flat.slots()) {
          std::vector<at::Tensor> gradients;
          for (int rank = 0; rank < world; ++rank)
            gradients.push_back(gradient_of(number, rank, slot, index));
          oracles[index++].step(gradients, rate(number));
        }
    }
    size_t compared = 0;
    state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
      const auto at = static_cast<size_t>(std::ranges::find(names, slot.name) - names.begin());
      const at::Tensor expected = parameter(oracles.at(at));
      EXPECT_LT((value.view(-1) - expected).abs().max().item<double>(), 1e-5) << slot.name;
      EXPECT_GT(expected.abs().max().item<double>(), 1e-3) << "it moved";
      ++compared;
    });
    if (collectives.rank() == 0) {
      EXPECT_EQ(compared, names.size());
    }
  });
}

void compare_one_bit_adam(int world, int stage) {
  const auto config = one_bit_config(stage);
  const auto& o = config.optimizer;
  compare<OneBitAdamOracle>(
      world, config,
      [&](int64_t numel, int64_t padded) {
        return OneBitAdamOracle({.beta1 = o.beta1,
                                 .beta2 = o.beta2,
                                 .eps = o.eps,
                                 .weight_decay = o.weight_decay,
                                 .freeze_step = kFreeze,
                                 .world = world},
                                numel, padded);
      },
      [](const OneBitAdamOracle& oracle) { return oracle.p; });
}

/// Variance intervals of 1, 2, 4 and 8, local intervals of 1, 2 and 4.
dsconfig::ResolvedConfig zero_one_config(int stage) {
  auto config = one_bit_config(stage);
  config.optimizer.kind = dsconfig::OptimizerKind::ZeroOneAdam;
  config.optimizer.var_freeze_step = kFreeze;
  config.optimizer.var_update_scaler = 3;
  config.optimizer.local_step_scaler = 10;
  config.optimizer.local_step_clipper = 4;
  return config;
}

TEST(OneBit, EqualsItsOracleOver60Steps) {
  for (const int world : {2, 3}) compare_one_bit_adam(world, 0);
}

TEST(OneBit, EqualsItsOracleWithShardedMoments) {
  for (const int world : {2, 3}) compare_one_bit_adam(world, 1);
}

void compare_zero_one(int world, int stage) {
  const auto config = zero_one_config(stage);
  const auto& o = config.optimizer;
  compare<ZeroOneAdamOracle>(
      world, config,
      [&](int64_t numel, int64_t padded) {
        return ZeroOneAdamOracle({.beta1 = o.beta1,
                                  .beta2 = o.beta2,
                                  .eps = o.eps,
                                  .weight_decay = o.weight_decay,
                                  .var_freeze_step = kFreeze,
                                  .var_update_scaler = 3,
                                  .local_step_scaler = 10,
                                  .local_step_clipper = 4,
                                  .world = world},
                                 numel, padded);
      },
      [](const ZeroOneAdamOracle& oracle) { return oracle.parameter(0); });
}

TEST(ZeroOne, EqualsItsOracleOver60Steps) {
  for (const int world : {1, 2, 3}) compare_zero_one(world, 0);
}

TEST(ZeroOne, EqualsItsOracleWithShardedMoments) {
  for (const int world : {2, 3}) compare_zero_one(world, 1);
}

void expect_ranks_part_and_meet(int stage) {
  SCOPED_TRACE(stage);
  const auto config = zero_one_config(stage);
  std::vector<std::vector<at::Tensor>> seen(2);
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    ModelState state(small_model(), config, at::kCPU, collectives);
    for (int64_t number = 0; number < 44; ++number) {
      step(state, number, 1e-3);
      for (size_t unit = 0; unit < state.units().size(); ++unit)
        state.wait_for(static_cast<int>(unit));
      memory::MemoryScope outside(memory::Class::Activations, memory::process_ledger());
      seen[static_cast<size_t>(collectives.rank())].push_back(state.flat(1).weight(0).clone());
    }
  });
  int apart = 0;
  for (int64_t number = 0; number < 44; ++number) {
    const bool local = optim::one_bit_phase(config, number) == optim::OneBitPhase::LocalStep;
    const bool together = !local || optim::local_interval(config, number).meets;
    const auto at = static_cast<size_t>(number);
    EXPECT_EQ(at::equal(seen[0][at], seen[1][at]), together) << number;
    apart += !together;
  }
  EXPECT_GT(apart, 5);
}

TEST(ZeroOne, RanksPartAndMeet) {
  for (const int stage : {0, 1}) expect_ranks_part_and_meet(stage);
}

TEST(ZeroOne, ARateOfZeroLeavesTheMomentum) {
  const auto config = zero_one_config(0);
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    ModelState state(small_model(), config, at::kCPU, collectives);
    for (int64_t number = 0; number < 26; ++number) step(state, number, number >= 24 ? 0 : 1e-3);
    state.visit_weights([&](const layout::Slot&, const at::Tensor& value) {
      EXPECT_TRUE(value.isfinite().all().item<bool>());
    });
  });
}

/// Coefficients and factors that leave their limits, and come back.
dsconfig::ResolvedConfig lamb_config(int stage) {
  auto config = one_bit_config(stage);
  config.optimizer.kind = dsconfig::OptimizerKind::OneBitLamb;
  config.optimizer.coeff_beta = 0.8;
  config.optimizer.max_coeff = 0.3;
  config.optimizer.min_coeff = 0.02;
  config.optimizer.factor_max = 1.5;
  config.optimizer.factor_min = 0.9;
  config.optimizer.factor_threshold = 0.05;
  return config;
}

struct LambOracle {
  std::vector<std::string> names;  ///< in the vector's order
  std::vector<size_t> indices;     ///< for gradient_of()
  std::vector<layout::Slot> slots;
  std::optional<OneBitLambOracle> run;

  LambOracle(const ModelState& state, const dsconfig::ResolvedConfig& config, int world) {
    const auto plan = plan::one_bit_plan(state.units(), state.plan(), config, world);
    EXPECT_EQ(plan.vectors.size(), 1u);
    std::map<int64_t, std::pair<layout::Slot, size_t>> by_offset;
    size_t index = 0;
    for (size_t f = 0; f < state.plan().flats.size(); ++f)
      for (size_t s = 0; s < state.plan().flats[f].slots().size(); ++s)
        by_offset[plan.places[f][s].offset] = {state.plan().flats[f].slots()[s], index++};
    std::vector<int64_t> numels;
    for (const auto& [offset, one] : by_offset) {
      slots.push_back(one.first);
      names.push_back(one.first.name);
      indices.push_back(one.second);
      numels.push_back(one.first.numel);
    }
    const auto& o = config.optimizer;
    run.emplace(OneBitLambOracle::Options{.beta1 = o.beta1,
                                          .beta2 = o.beta2,
                                          .eps = o.eps,
                                          .weight_decay = o.weight_decay,
                                          .max_coeff = o.max_coeff,
                                          .min_coeff = o.min_coeff,
                                          .coeff_beta = o.coeff_beta,
                                          .factor_max = o.factor_max,
                                          .factor_min = o.factor_min,
                                          .factor_threshold = o.factor_threshold,
                                          .freeze_step = kFreeze,
                                          .world = world},
                numels, plan.vectors[0].padded(world));
  }

  void step(int64_t number, int world) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (size_t t = 0; t < slots.size(); ++t) {
      gradients.emplace_back();
      for (int rank = 0; rank < world; ++rank)
        gradients.back().push_back(gradient_of(number, rank, slots[t], indices[t]));
    }
    run->step(gradients, rate(number));
  }
};

void compare_lamb(int world, const dsconfig::ResolvedConfig& config) {
  SCOPED_TRACE("world " + std::to_string(world) + " stage " + std::to_string(config.zero.stage));
  testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
    ModelState state(small_model(), config, at::kCPU, collectives);
    LambOracle oracle(state, config, world);
    for (int64_t number = 0; number < 60; ++number) {
      step(state, number, rate(number));
      if (collectives.rank() == 0) oracle.step(number, world);
    }
    size_t compared = 0;
    state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
      const auto at =
          static_cast<size_t>(std::ranges::find(oracle.names, slot.name) - oracle.names.begin());
      const at::Tensor expected = oracle.run->parameter(at);
      EXPECT_LT((value.view(-1) - expected).abs().max().item<double>(), 1e-5) << slot.name;
      EXPECT_GT(expected.abs().max().item<double>(), 1e-3) << "it moved";
      ++compared;
    });
    if (collectives.rank() == 0) {
      EXPECT_EQ(compared, oracle.names.size());
    }
  });
}

TEST(OneBitLamb, EqualsItsOracleOver60Steps) {
  for (const int world : {1, 2, 3}) compare_lamb(world, lamb_config(0));
}

TEST(OneBitLamb, EqualsItsOracleWithShardedMoments) {
  for (const int world : {2, 3}) compare_lamb(world, lamb_config(1));
}

TEST(OneBitLamb, EqualsItsOracleWithDeepSpeedsDefaults) {
  auto config = lamb_config(0);
  const dsconfig::OptimizerConfig defaults;
  auto& o = config.optimizer;
  o.coeff_beta = defaults.coeff_beta;
  o.max_coeff = defaults.max_coeff;
  o.min_coeff = defaults.min_coeff;
  o.factor_max = defaults.factor_max;
  o.factor_min = defaults.factor_min;
  o.factor_threshold = defaults.factor_threshold;
  o.weight_decay = 0;
  compare_lamb(2, config);
}

/// DeepSpeed divides by the momentum's norm.
TEST(OneBitLamb, AMomentumOfZeroIsLeftUnscaled) {
  const auto config = lamb_config(0);
  testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger&) {
    ModelState state(small_model(), config, at::kCPU, collectives);
    for (int64_t number = 0; number < 26; ++number)
      step(state, number, 1e-3, /*zero=*/number < kFreeze ? 0 : -1);
    state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
      EXPECT_TRUE(value.isfinite().all().item<bool>()) << slot.name;
    });
  });
}

TEST(OneBit, OneRankCompressesNothingAndFreezesTheVariance) {
  const auto config = one_bit_config(0);
  testing_support::run_ranks(1, [&](comm::Collectives& collectives, memory::Ledger&) {
    ModelState state(small_model(), config, at::kCPU, collectives);
    for (int64_t number = 0; number < 2 * kFreeze; ++number)
      EXPECT_FALSE(state.update_method().keeps_gradients_local(number)) << number;
    std::vector<float> before, after;
    const auto variances = [&](std::vector<float>& out) {
      const auto kept = state.for_pieces([&](const checkpoint::Piece& piece) -> Status {
        if (piece.state == "exp_avg_sq")
          out.insert(out.end(), piece.data.begin(), piece.data.end());
        return {};
      });
      EXPECT_TRUE(kept);
    };
    for (int64_t number = 0; number < kFreeze; ++number) step(state, number, 1e-3);
    variances(before);
    for (int64_t number = kFreeze; number < kFreeze + 5; ++number) step(state, number, 1e-3);
    variances(after);
    EXPECT_EQ(before, after);
    EXPECT_GT(before.size(), 900u);
  });
}

TEST(OneBit, BytesAreThePlans) {
  using Make = dsconfig::ResolvedConfig (*)(int stage);
  for (const auto& [make, name] : {std::pair<Make, const char*>(one_bit_config, "OneBitAdam"),
                                   std::pair<Make, const char*>(zero_one_config, "ZeroOneAdam"),
                                   std::pair<Make, const char*>(lamb_config, "OneBitLamb")}) {
    for (const auto& [stage, precision] :
         {std::pair{0, Precision::Fp32}, std::pair{0, Precision::Bf16},
          std::pair{1, Precision::Fp32}, std::pair{1, Precision::Bf16}}) {
      auto config = make(stage);
      SCOPED_TRACE(name + std::to_string(stage));
      config.precision = config.communication_dtype = config.grad_accum_dtype = precision;
      config.optimizer.freeze_step = config.optimizer.var_freeze_step = 2;
      const auto planned = plan::memory_model(
          {.model = small_model(), .config = config, .world = 2, .tokens_per_row = 8});
      testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
        ModelState state(small_model(), config, at::kCPU, collectives);
        for (int64_t number = 0; number < 5; ++number) {
          collectives.reset_counters();
          step(state, number, 1e-3);
        }
        for (size_t unit = 0; unit < state.units().size(); ++unit)
          state.wait_for(static_cast<int>(unit));
        EXPECT_EQ(collectives.counters().of(comm::Traffic::Gradients).bytes,
                  planned.wire.momentum_bytes);
        EXPECT_EQ(collectives.counters().of(comm::Traffic::Parameters).bytes,
                  planned.wire.later_parameter_bytes);
        EXPECT_EQ(ledger.peak(memory::Class::Optimizer), planned.bytes.optimizer);
        // step() reduces flat by flat: it may hold less than a backward pass.
        EXPECT_LE(ledger.peak(memory::Class::Gradients), planned.bytes.gradients);
        EXPECT_LE(ledger.peak(memory::Class::Buckets), planned.bytes.buckets);
        EXPECT_EQ(ledger.peak(memory::Class::Parameters), planned.bytes.parameters);
      });
    }
  }
}

/// A run that ends before ZeroOneAdam's freeze: at stage 1 the moments stay with their owners, and the plan
/// counts no local step.
TEST(ZeroOne, BeforeTheFreezeBytesAreThePlans) {
  std::map<int, int64_t> optimizer;
  for (const int stage : {0, 1}) {
    for (const auto precision : {Precision::Fp32, Precision::Bf16}) {
      SCOPED_TRACE(std::to_string(stage) + (precision == Precision::Bf16 ? " bf16" : " fp32"));
      auto config = zero_one_config(stage);
      config.precision = config.communication_dtype = config.grad_accum_dtype = precision;
      config.optimizer.var_update_scaler = 1;
      config.total_steps = kFreeze;
      const auto planned = plan::memory_model(
          {.model = small_model(), .config = config, .world = 2, .tokens_per_row = 8});
      if (precision == Precision::Fp32) optimizer[stage] = planned.bytes.optimizer;
      testing_support::run_ranks(2, [&](comm::Collectives& collectives, memory::Ledger& ledger) {
        ModelState state(small_model(), config, at::kCPU, collectives);
        int64_t compressed = 0;
        for (int64_t number = 0; number < kFreeze; ++number) {
          collectives.reset_counters();
          step(state, number, 1e-3);
          for (size_t unit = 0; unit < state.units().size(); ++unit)
            state.wait_for(static_cast<int>(unit));
          if (optim::one_bit_phase(config, number) != optim::OneBitPhase::CompressedGradient)
            continue;
          ++compressed;
          const auto& sent = collectives.counters();
          EXPECT_EQ(sent.of(comm::Traffic::Gradients).bytes, planned.wire.momentum_bytes);
          EXPECT_EQ(sent.of(comm::Traffic::Parameters).bytes, planned.wire.later_parameter_bytes);
          EXPECT_EQ(sent.of(comm::Traffic::Moments).bytes, 0);
        }
        EXPECT_GT(compressed, 5);
        EXPECT_EQ(ledger.peak(memory::Class::Optimizer), planned.bytes.optimizer);
        EXPECT_LE(ledger.peak(memory::Class::Gradients), planned.bytes.gradients);
        EXPECT_LE(ledger.peak(memory::Class::Buckets), planned.bytes.buckets);
        EXPECT_EQ(ledger.peak(memory::Class::Parameters), planned.bytes.parameters);
      });
    }
  }
  EXPECT_LT(optimizer[1], 3 * optimizer[0] / 4) << "half of the moments; the errors stay";
}

}  // namespace
}  // namespace dsj::zero
