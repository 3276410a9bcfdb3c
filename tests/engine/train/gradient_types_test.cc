// Gradients on their way: every type they may travel and add up in, and where they are averaged.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/train/support.h"

namespace dsj::train {
namespace {

using dsconfig::Precision;

constexpr Precision kTypes[] = {Precision::Fp32, Precision::Bf16, Precision::Fp16};

struct Outcome {
  std::vector<double> losses;
  double first_norm = 0;
  int64_t wire_bytes = 0;  ///< of gradients, first step
};

Outcome outcome(const dsconfig::ResolvedConfig& config, int64_t steps = 3, int world = 2) {
  Outcome out;
  const SmallRun run{.world = world, .config = config};
  testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
    Rank rank(run, collectives);
    rank.load(run.model);
    for (int64_t step = 0; step < steps; ++step) {
      collectives.reset_counters();
      const auto result = rank.step(step);
      if (collectives.rank() != 0) continue;
      out.losses.push_back(result.loss);
      if (step > 0) continue;
      out.first_norm = result.grad_norm;
      out.wire_bytes = collectives.counters().of(comm::Traffic::Gradients).bytes;
    }
  });
  return out;
}

dsconfig::ResolvedConfig typed(int stage, Precision model, Precision sum, Precision wire) {
  auto config = small_config(stage, 1, 2);
  config.precision = model;
  config.grad_accum_dtype = sum;
  config.communication_dtype = wire;
  config.loss_scale.initial = 1024;
  return config;
}

/// 2^-8 for bf16, 2^-10 for fp16: what one rounding may move.
double rounding(Precision type) {
  return type == Precision::Fp32 ? 1e-6 : type == Precision::Bf16 ? 1.0 / 256 : 1.0 / 1024;
}

TEST(GradientTypes, EveryCombinationTrainsWithinItsRounding) {
  for (const Precision model : kTypes) {
    for (int stage = 1; stage <= 3; ++stage) {
      const Outcome plain = outcome(typed(stage, model, Precision::Fp32, Precision::Fp32));
      for (const Precision sum : kTypes) {
        for (const Precision wire : kTypes) {
          SCOPED_TRACE(std::string(name_of(model)) + " sum " + name_of(sum) + " wire " +
                       name_of(wire) + " stage " + std::to_string(stage));
          const Outcome found = outcome(typed(stage, model, sum, wire));
          const double limit = 4 * std::max(rounding(sum), rounding(wire));
          EXPECT_NEAR(found.first_norm, plain.first_norm, limit * plain.first_norm);
          for (size_t i = 0; i < plain.losses.size(); ++i)
            EXPECT_NEAR(found.losses[i], plain.losses[i], 3e-3 * plain.losses[i]);
          EXPECT_EQ(found.wire_bytes, plain.wire_bytes / (wire == Precision::Fp32 ? 1 : 2));
        }
      }
    }
  }
}

TEST(GradientTypes, ASixteenBitSumIsNotAnFp32Sum) {
  for (int stage = 0; stage <= 3; ++stage) {
    const auto wide = outcome(typed(stage, Precision::Fp32, Precision::Fp32, Precision::Fp32));
    for (const Precision sum : {Precision::Bf16, Precision::Fp16}) {
      const auto narrow = outcome(typed(stage, Precision::Fp32, sum, Precision::Fp32));
      EXPECT_NE(narrow.first_norm, wide.first_norm) << "stage " << stage;
    }
  }
}

dsconfig::ResolvedConfig averaged(int stage, const dsconfig::AveragingConfig& averaging,
                                  Precision wire = Precision::Fp32) {
  auto config = typed(stage, Precision::Fp32, Precision::Fp32, wire);
  config.averaging = averaging;
  return config;
}

TEST(Averaging, AMeanWhereverItIsDivided) {
  for (int stage = 0; stage <= 3; ++stage) {
    const Outcome plain = outcome(averaged(stage, {}), 2, 3);
    for (const bool prescale : {true, false}) {
      const Outcome found =
          outcome(averaged(stage, {.prescale = prescale, .predivide = prescale ? 1 : 2.0}), 2, 3);
      EXPECT_NEAR(found.first_norm, plain.first_norm, 1e-5 * plain.first_norm) << stage;
      EXPECT_NEAR(found.losses[1], plain.losses[1], 1e-6 * plain.losses[1]) << stage;
    }
  }
}

TEST(Averaging, WhereItIsDividedDecidesWhatOverflows) {
  for (int stage = 0; stage <= 3; ++stage) {
    // A factor this small multiplies the gradient out of fp16's range before it travels.
    const auto norm = [&](const dsconfig::AveragingConfig& averaging) {
      return outcome(averaged(stage, averaging, Precision::Fp16), 1).first_norm;
    };
    EXPECT_TRUE(std::isfinite(norm({}))) << stage;
    EXPECT_TRUE(std::isfinite(norm({.predivide = 2}))) << stage;
    EXPECT_FALSE(std::isfinite(norm({.predivide = 1e-7}))) << stage;
    EXPECT_TRUE(std::isfinite(norm({.prescale = true, .predivide = 1e-7})))
        << "prescaled gradients do not look at the factor";
  }
}

TEST(Averaging, SumIsWorldTimesTheMean) {
  for (int stage = 0; stage <= 2; ++stage) {
    for (const Precision wire : kTypes) {
      const double mean = outcome(averaged(stage, {}, wire), 1).first_norm;
      const double sum = outcome(averaged(stage, {.mean = false}, wire), 1).first_norm;
      EXPECT_NEAR(sum, 2 * mean, 1e-2 * mean) << stage;
    }
  }
}

}  // namespace
}  // namespace dsj::train
