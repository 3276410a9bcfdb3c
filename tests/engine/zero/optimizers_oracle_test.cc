// Every optimizer, from its ds_config section to 50 updates, against PyTorch's own classes
// in float64 (tests/fixtures/optimizers.oracle.json; Lion and LAMB: their formulas).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "job/dsconfig/resolve.h"
#include "test_paths.h"
#include "tests/engine/support/update_parameter.h"

namespace dsj::zero {
namespace {

using nlohmann::json;

/// One small parameter and what the optimizer keeps for it.
struct Parameter {
  at::Tensor p;
  std::vector<at::Tensor> states;
};

at::Tensor listed_values(const json& list, int64_t first, int64_t count) {
  std::vector<float> out;
  for (int64_t i = first; i < first + count; ++i) out.push_back(list[i].get<float>());
  return at::tensor(out);
}

class OptimizersOracle : public testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(DSJ_SOURCE_DIR "/tests/fixtures/optimizers.oracle.json");
    oracle_ = json::parse(file);
    for (const auto& shape : oracle_["shapes"]) {
      int64_t numel = 1;
      for (const int64_t n : shape) numel *= n;
      numels_.push_back(numel);
    }
  }

  void update(const dsconfig::OptimizerConfig& config, double lr, double previous_lr, int64_t step,
              std::vector<Parameter>& parameters) const {
    constexpr double kScale = 0.5;  // powers of two: the scaled gradient is the oracle's to the bit
    const auto update =
        optim::make_update(config, {.lr = lr, .previous_lr = previous_lr}, step, kScale);
    int64_t offset = 0;
    for (size_t i = 0; i < parameters.size(); offset += numels_[i], ++i) {
      auto& [p, states] = parameters[i];
      const at::Tensor grad =
          listed_values(oracle_["gradients"][step], offset, numels_[i]).div_(kScale);
      testing_support::update_parameter(update, {p, grad, states});
    }
  }

  json oracle_;
  std::vector<int64_t> numels_;
};

TEST_F(OptimizersOracle, EqualTorchOver50Steps) {
  int64_t compared = 0;
  for (const auto& one : oracle_["cases"]) {
    SCOPED_TRACE(one["type"].get<std::string>() + " " + one["params"].dump());
    const auto resolution =
        dsconfig::resolve({{"train_micro_batch_size_per_gpu", 1},
                           {"optimizer", {{"type", one["type"]}, {"params", one["params"]}}}},
                          {}, {});
    ASSERT_TRUE(resolution.runnable()) << resolution.findings.front().message;
    const auto& config = resolution.config.optimizer;
    EXPECT_EQ(config.lr, one["lr"].get<double>()) << "the class's default";
    std::vector<Parameter> parameters;
    int64_t offset = 0;
    for (const int64_t numel : numels_) {
      parameters.push_back({listed_values(oracle_["start"], offset, numel), {}});
      for (const auto& spec : optim::states_of(config))
        parameters.back().states.push_back(at::full({numel}, spec.initial, at::kFloat));
      offset += numel;
    }
    double previous = config.lr * oracle_["lr_factors"][0].get<double>();
    for (int64_t step = 0; step < 50; ++step) {
      const double lr = config.lr * oracle_["lr_factors"][step].get<double>();
      update(config, lr, previous, step, parameters);
      previous = lr;
      const auto kept = one["after"].find(std::to_string(step + 1));
      if (kept == one["after"].end()) continue;
      offset = 0;
      for (const auto& [p, states] : parameters) {
        const at::Tensor expected = listed_values(*kept, offset, p.numel());
        // The oracle is float64. Each of our updates rounds a weight of about 1 to fp32 once, by up to
        // 2^-24, and these add up; within one update some sixteen roundings may point one way.
        const at::Tensor size = expected.abs().clamp_min(1);
        const double apart = (p - expected).abs().div(size).max().item<double>();
        EXPECT_LT(apart, std::ldexp(static_cast<double>(step + 1 + 16), -24))
            << "after " << step + 1 << " steps";
        offset += p.numel();
        compared += p.numel();
      }
    }
  }
  EXPECT_GT(compared, 3000);
}

}  // namespace
}  // namespace dsj::zero
