// The sum of squares behind the gradient norm.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "engine/zero/flat/update.h"

namespace dsj::zero {
namespace {

constexpr int64_t kNormElements = 200'003;  // several tasks and an odd rest

at::Tensor random_gradient(at::ScalarType type) {
  at::manual_seed(5);
  return at::randn({kNormElements}).to(type);
}

double sum_of_squares(const at::Tensor& grad, double start = 0) {
  const at::Tensor sum = at::full({}, start, at::kDouble);
  add_sum_of_squares(grad, sum);
  return sum.item<double>();
}

TEST(SumOfSquares, IsAddedInDouble) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor grad = random_gradient(type);
    const double want = grad.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(sum_of_squares(grad), want, 1e-6 * want);
    EXPECT_EQ(sum_of_squares(grad, 2 * want), 2 * want + sum_of_squares(grad));
  }
}

TEST(SumOfSquares, SameBitsWithOneThreadAndTwo) {
  const int before = at::get_num_threads();
  const at::Tensor grad = random_gradient(at::kFloat);
  at::set_num_threads(1);
  const double norm = sum_of_squares(grad);
  at::set_num_threads(2);
  EXPECT_EQ(norm, sum_of_squares(grad));
  at::set_num_threads(before);
}

}  // namespace
}  // namespace dsj::zero
