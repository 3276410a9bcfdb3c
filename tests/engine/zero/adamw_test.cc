// The fast AdamW and norm against their ATen form, whatever the number of threads.
#include "engine/zero/adamw.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace dsj::zero {
namespace {

constexpr int64_t kElements = 200'003;  // several tasks and an odd rest

struct Tensors {
  at::Tensor p, grad, m, v, low;
  explicit Tensors(at::ScalarType grad_type) {
    at::manual_seed(5);
    p = at::randn({kElements});
    grad = at::randn({kElements}).to(grad_type);
    m = at::randn({kElements}) * 0.1;
    v = at::rand({kElements}) * 0.1;
    low = at::zeros({kElements}, at::kBFloat16);
  }
};

kernels::AdamW arguments(bool decoupled) {
  return {.lr = 0.01f,
          .beta1 = 0.9f,
          .beta2 = 0.95f,
          .eps = 1e-8f,
          .weight_decay = 0.1f,
          .decoupled = decoupled,
          .bias_correction1 = 0.19f,
          .bias_correction2 = 0.0975f,
          .grad_scale = 0.25f};
}

TEST(AdamWStep, EqualsItsReference) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const bool decoupled : {true, false}) {
      Tensors fast(type), slow(type);
      for (int step = 0; step < 5; ++step) {
        adamw_step(arguments(decoupled), fast.p, fast.grad, fast.m, fast.v, fast.low);
        adamw_step_reference(arguments(decoupled), slow.p, slow.grad, slow.m, slow.v, slow.low);
      }
      EXPECT_LT((fast.p - slow.p).abs().max().item<double>(), 5e-6);
      EXPECT_LT((fast.m - slow.m).abs().max().item<double>(), 1e-6);
      EXPECT_LT((fast.v - slow.v).abs().max().item<double>(), 1e-6);
      EXPECT_TRUE(fast.low.equal(fast.p.to(at::kBFloat16)))
          << "the 16-bit copy is the rounded master";
    }
  }
}

TEST(AdamWStep, SameBitsWithOneThreadAndTwo) {
  const int before = at::get_num_threads();
  Tensors one(at::kFloat), two(at::kFloat);
  at::set_num_threads(1);
  adamw_step(arguments(true), one.p, one.grad, one.m, one.v, one.low);
  const double norm = sum_of_squares(one.grad);
  at::set_num_threads(2);
  adamw_step(arguments(true), two.p, two.grad, two.m, two.v, two.low);
  EXPECT_TRUE(one.p.equal(two.p));
  EXPECT_EQ(norm, sum_of_squares(two.grad));
  at::set_num_threads(before);
}

TEST(SumOfSquares, EqualsTheSumInDouble) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Tensors t(type);
    const double want = t.grad.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(sum_of_squares(t.grad), want, 1e-6 * want);
  }
}

}  // namespace
}  // namespace dsj::zero
