// The 1-bit optimizers, from their ds_config sections over 60 steps and through their freezes, against
// DeepSpeed 0.18.9's own classes (tests/fixtures/one_bit.oracle.json; tests/oracle/one_bit_oracle.py
// says what it holds).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/zero/methods/one_bit.h"
#include "engine/zero/model_state.h"
#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/engine/support/ranks.h"
#include "tests/engine/zero/one_bit_steps.h"

namespace dsj::zero {
namespace {

using nlohmann::json;
using testing_support::one_bit_step;
using testing_support::small_model;

class OneBitDeepSpeed : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(DSJ_SOURCE_DIR "/tests/fixtures/one_bit.oracle.json");
    fixture_ = json::parse(file);
    const auto& names = fixture_["parameters"];
    for (size_t i = 0; i < names.size(); ++i) indices_[names[i]] = i;
  }

  static dsconfig::ResolvedConfig config_of(const json& one, int stage) {
    const auto resolution =
        dsconfig::resolve({{"train_micro_batch_size_per_gpu", 1},
                           {"gradient_clipping", 0},
                           {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 200}}},
                           {"optimizer", {{"type", one["type"]}, {"params", one["params"]}}}},
                          {}, {.world_size = one["world"]});
    EXPECT_TRUE(resolution.runnable());
    return resolution.config;
  }

  /// The largest distance of a number from the recorded one after so many steps. Counts numbers.
  double apart(ModelState& state, const json& recorded, int64_t& compared) const {
    double most = 0;
    state.visit_weights([&](const layout::Slot& slot, const at::Tensor& value) {
      const auto& expected = recorded[indices_.at(slot.name)];
      const auto every =
          slot.numel == std::ssize(expected)
              ? 1
              : std::max<int64_t>(1, slot.numel / fixture_["samples"].get<int64_t>());
      const at::Tensor ours = value.contiguous().view(-1);
      for (size_t i = 0; i < expected.size(); ++i, ++compared) {
        const auto number = ours[static_cast<int64_t>(i) * every].item<double>();
        most = std::max(most, std::abs(number - expected[i].get<double>()));
      }
    });
    return most;
  }

  /// 1e-5 of the largest number, and not below twice what the fixture's rounding takes.
  static double tolerance(const json& recorded) {
    double largest = 0;
    for (const json& parameter : recorded)
      for (const double number : parameter) largest = std::max(largest, std::abs(number));
    return std::max(1e-5 * largest, 1e-7);
  }

  void compare(const json& one, int stage) const {
    const auto config = config_of(one, stage);
    const int world = one["world"];
    const double limit = tolerance(one["after"]["60"]);
    testing_support::run_ranks(world, [&](comm::Collectives& collectives, memory::Ledger&) {
      ModelState state(small_model(), config, at::kCPU, collectives);
      int64_t compared = 0;
      double most = 0;
      for (int64_t number = 0; number < 60; ++number) {
        const auto seed = one["draw"].get<int64_t>() + 10'000 * number + 1000 * collectives.rank();
        one_bit_step(state, number, testing_support::rate(number),
                     [&](const layout::Slot& slot, size_t) {
                       const auto index = static_cast<int64_t>(indices_.at(slot.name));
                       const at::Tensor gradient =
                           testing_support::drawn(static_cast<uint32_t>(seed + index), slot.numel);
                       gradient.narrow(0, 0, 1).zero_();
                       return gradient;
                     });
        const std::string steps = std::to_string(number + 1);
        if (!one["after"].contains(steps)) continue;
        const double here = apart(state, one["after"][steps], compared);
        EXPECT_LE(here, limit) << "after step " << steps;
        most = std::max(most, here);
      }
      if (collectives.rank() != 0) return;
      EXPECT_GT(compared, 1000);
      std::cout << "oracle: " << one["type"] << " world " << world << " stage " << stage
                << " apart by " << most << std::endl;
    });
  }

  json fixture_;
  std::map<std::string, size_t> indices_;
};

TEST_F(OneBitDeepSpeed, EqualsItsClassesOver60Steps) {
  ASSERT_EQ(fixture_["cases"].size(), 6u);
  for (const auto& one : fixture_["cases"]) {
    for (const int stage : {0, 1}) {
      SCOPED_TRACE(one["type"].get<std::string>() + " world " + one["world"].dump() + " stage " +
                   std::to_string(stage));
      compare(one, stage);
    }
  }
}

/// No number in it is so near to 0 that another processor's rounding turns its sign.
TEST_F(OneBitDeepSpeed, TheFixturesSignsAreFarFromRounding) {
  for (const auto& one : fixture_["cases"]) EXPECT_GE(one["closest"].get<double>(), 4e-6);
}

}  // namespace
}  // namespace dsj::zero
