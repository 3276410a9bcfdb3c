#include "engine/optim/averaging.h"

#include <gtest/gtest.h>

namespace dsj::optim {
namespace {

using dsconfig::Precision;
using dsconfig::ResolvedConfig;

void expect(const ResolvedConfig& config, int world, double before, double after, double update) {
  const Averaging found = averaging(config, world);
  EXPECT_DOUBLE_EQ(found.before, before);
  EXPECT_DOUBLE_EQ(found.after, after);
  EXPECT_DOUBLE_EQ(found.at_update, update);
}

TEST(Averaging, TheUpdateDividesUnlessFp16IsInvolved) {
  ResolvedConfig config;
  expect(config, 4, 1, 1, 0.25);
  config.precision = config.grad_accum_dtype = config.communication_dtype = Precision::Bf16;
  expect(config, 4, 1, 1, 0.25);
  for (auto* type : {&config.precision, &config.grad_accum_dtype, &config.communication_dtype}) {
    *type = Precision::Fp16;
    expect(config, 4, 0.25, 1, 1);
    *type = Precision::Bf16;
  }
}

TEST(Averaging, TheKeysSayWhere) {
  ResolvedConfig config;
  config.averaging.predivide = 2;
  expect(config, 8, 0.5, 0.25, 1);
  config.zero.stage = 3;
  expect(config, 8, 1.0 / 16, 2, 1);
  config.averaging.prescale = true;  // the factor is not looked at then
  expect(config, 8, 0.125, 1, 1);
  config.averaging.mean = false;
  expect(config, 8, 1, 1, 1);
}

TEST(Averaging, OneRankHasNothingToAverage) {
  ResolvedConfig config;
  config.averaging.prescale = true;
  config.precision = Precision::Fp16;
  expect(config, 1, 1, 1, 1);
}

TEST(Averaging, AMeanIsAMeanWhereverItIsDivided) {
  for (const bool prescale : {false, true}) {
    for (const double predivide : {1.0, 2.0, 3.0}) {
      for (int stage = 0; stage <= 3; ++stage) {
        ResolvedConfig config;
        config.zero.stage = stage;
        config.averaging = {.prescale = prescale, .predivide = predivide};
        const Averaging found = averaging(config, 6);
        EXPECT_DOUBLE_EQ(found.before * found.after * found.at_update, 1.0 / 6);
      }
    }
  }
}

}  // namespace
}  // namespace dsj::optim
