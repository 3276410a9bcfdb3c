// Every optimizer: the CPU's update against libtorch's operations (the oracle port), whatever the
// number of threads.
#include "engine/zero/flat/update.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/support/oracle_port.h"
#include "tests/engine/support/update_parameter.h"

namespace dsj::zero {
namespace {

using dsconfig::OptimizerConfig;
using dsconfig::OptimizerKind;

constexpr int64_t kUpdateElements = 70'003;  // several tasks and an odd rest

struct Tensors {
  at::Tensor p, grad, low;
  std::vector<at::Tensor> states;
  Tensors(const OptimizerConfig& config, at::ScalarType grad_type,
          at::ScalarType low_type = at::kBFloat16) {
    at::manual_seed(5);
    p = at::randn({kUpdateElements});
    grad = at::randn({kUpdateElements}).to(grad_type);
    low = at::zeros({kUpdateElements}, low_type);
    // Away from 0: there rounding alone decides the direction of Adam's steps.
    for (size_t i = 0; i < optim::states_of(config).size(); ++i)
      states.push_back(at::rand({kUpdateElements}).mul_(0.1).add_(0.1));
  }
  UpdateSpan span() const { return {p, grad, states, low}; }
};

/// One of every kind, its options on.
std::vector<OptimizerConfig> every_kind() {
  const OptimizerConfig base{.lr = 0.01, .beta2 = 0.95, .weight_decay = 0.1};
  std::vector<OptimizerConfig> configs;
  for (const dsconfig::Optimizer& one : dsconfig::kOptimizers) {
    if (!one.refusal.empty() || one.communicates) continue;  // those have Adam's rule
    OptimizerConfig config = base;
    config.kind = one.defaults.kind;
    config.eps = one.defaults.eps;
    if (config.kind == OptimizerKind::Sgd) config.momentum = 0.9;
    if (config.kind == OptimizerKind::RMSprop) config.centered = true;
    configs.push_back(config);
    if (one.name == "Adam") configs.back().decoupled_weight_decay = false;
    if (config.kind == OptimizerKind::Lamb) config.eps_inside_sqrt = true;
    if (config.kind == OptimizerKind::Lamb) configs.push_back(config);
    if (config.kind != OptimizerKind::Sgd) continue;
    config.nesterov = true;
    configs.push_back(config);
    config.nesterov = false;
    config.momentum = 0;
    configs.push_back(config);
  }
  return configs;
}

/// `directed`: LAMB's direction takes the place of an fp32 gradient, which each step has anew.
void take_steps(const OptimizerConfig& config, const Tensors& t, int steps, bool directed = false) {
  const at::Tensor grad = t.grad.clone();
  for (int step = 0; step < steps; ++step) {
    const auto update = optim::make_update(config, {.lr = config.lr, .previous_lr = config.lr},
                                           step, /*grad_scale=*/0.25);
    UpdateSpan span = t.span();
    if (directed && grad.scalar_type() == at::kFloat) span.direction = span.grad;
    testing_support::update_parameter(update, span);
    t.grad.copy_(grad);
  }
}

TEST(UpdateSpan, EqualsItsReference) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto& config : every_kind()) {
      SCOPED_TRACE(name_of(config));
      const Tensors fast(config, type), slow(config, type);
      take_steps(config, fast, 5);
      testing_support::by_oracle([&] { take_steps(config, slow, 5); });
      EXPECT_LT((fast.p - slow.p).abs().max().item<double>(), 5e-6);
      // ASGD's average is a parameter, of up to 5: above 1 a rounding is relative.
      for (size_t i = 0; i < fast.states.size(); ++i) {
        const at::Tensor size = slow.states[i].abs().clamp_min(1);
        EXPECT_LT((fast.states[i] - slow.states[i]).abs().div(size).max().item<double>(), 1e-6);
      }
      EXPECT_TRUE(fast.low.equal(fast.p.to(at::kBFloat16)))
          << "the 16-bit copy is the rounded master";
    }
  }
}

TEST(UpdateSpan, LambsDirectionMayTakeTheGradientsPlace) {
  for (const auto& config : every_kind()) {
    if (config.kind != OptimizerKind::Lamb) continue;
    const Tensors kept(config, at::kFloat), directed(config, at::kFloat),
        reference(config, at::kFloat);
    take_steps(config, kept, 3);
    take_steps(config, directed, 3, true);
    EXPECT_TRUE(directed.p.equal(kept.p));
    for (size_t i = 0; i < kept.states.size(); ++i)
      EXPECT_TRUE(directed.states[i].equal(kept.states[i]));
    EXPECT_TRUE(directed.low.equal(kept.low));
    testing_support::by_oracle([&] { take_steps(config, reference, 3, true); });
    EXPECT_LT((directed.p - reference.p).abs().max().item<double>(), 5e-6)
        << "kernels that compute it once more need not write it";
  }
}

TEST(UpdateSpan, EveryGradientTypeWithEveryCopyType) {
  const OptimizerConfig config{.lr = 0.01, .beta2 = 0.95, .weight_decay = 0.1};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto low : {at::kBFloat16, at::kHalf}) {
      const Tensors fast(config, type, low), slow(config, type, low);
      take_steps(config, fast, 3);
      testing_support::by_oracle([&] { take_steps(config, slow, 3); });
      EXPECT_LT((fast.p - slow.p).abs().max().item<double>(), 5e-6);
      EXPECT_TRUE(fast.low.equal(fast.p.to(low))) << "the 16-bit copy is the rounded master";
    }
  }
}

TEST(UpdateSpan, SameBitsWithOneThreadAndTwo) {
  const int before = at::get_num_threads();
  for (const auto& config : every_kind()) {
    SCOPED_TRACE(name_of(config));
    const Tensors one(config, at::kFloat), two(config, at::kFloat);
    at::set_num_threads(1);
    take_steps(config, one, 2);
    at::set_num_threads(2);
    take_steps(config, two, 2);
    EXPECT_TRUE(one.p.equal(two.p));
  }
  at::set_num_threads(before);
}

}  // namespace
}  // namespace dsj::zero
