// The orthogonalisation against its formula in float64, and what it does to singular values.
#include "engine/zero/methods/newton_schulz.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace dsj::zero {
namespace {

using dsconfig::NewtonSchulz;

at::Tensor random_matrix(int64_t rows, int64_t columns) {
  std::mt19937 random(static_cast<uint32_t>(rows * 1000 + columns));
  std::vector<float> numbers;
  for (int64_t i = 0; i < rows * columns; ++i)
    numbers.push_back(static_cast<float>(random()) / 2147483648.f - 1);
  return at::tensor(numbers).view({rows, columns});
}

/// The iteration as its formula says it, in float64.
at::Tensor by_formula(const at::Tensor& matrix, int steps) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = (tall ? matrix.t() : matrix).to(at::kDouble);
  x = x / (x.norm() + 1e-7);
  for (int i = 0; i < steps; ++i) {
    const at::Tensor a = x.mm(x.t());
    x = 3.4445 * x + (-4.775 * a + 2.0315 * a.mm(a)).mm(x);
  }
  return std::sqrt(std::max(1.0, static_cast<double>(matrix.size(0)) / matrix.size(1))) *
         (tall ? x.t() : x);
}

double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b).abs().max().item<double>();
}

TEST(NewtonSchulz, BothFormsAreTheFormulaUpToTheirRounding) {
  for (const auto& [rows, columns] : {std::pair{6, 20}, {20, 6}, {12, 12}, {1, 5}, {32, 88}}) {
    const at::Tensor matrix = random_matrix(rows, columns), before = matrix.clone();
    for (int steps = 1; steps <= 6; ++steps) {
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns) + ", steps " +
                   std::to_string(steps));
      const at::Tensor expected = by_formula(matrix, steps);
      EXPECT_LT(apart(orthogonalised(matrix, NewtonSchulz::Gram, steps), expected), 1e-4);
      EXPECT_LT(apart(orthogonalised(matrix, NewtonSchulz::Standard, steps), expected), 0.06)
          << "bf16";
      EXPECT_EQ(orthogonalised(matrix, NewtonSchulz::Gram, steps).sizes(), matrix.sizes());
    }
    EXPECT_TRUE(at::equal(matrix, before)) << "it is not changed";
  }
}

TEST(NewtonSchulz, StandardRoundsToBf16) {
  const at::Tensor x = orthogonalised(random_matrix(6, 20), NewtonSchulz::Standard, 5);
  EXPECT_EQ(x.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(x, x.to(at::kBFloat16).to(at::kFloat)));
}

TEST(NewtonSchulz, MoreStepsComeCloserToOrthogonal) {
  at::Tensor matrix = random_matrix(8, 24);
  for (int64_t row = 0; row < 8; ++row) matrix.select(0, row).mul_(std::ldexp(1.0, -row));
  // Of X X^T, whose diagonal has the squares of singular values.
  const auto off = [&](int steps) {
    const at::Tensor x = orthogonalised(matrix, NewtonSchulz::Gram, steps);
    return (x.mm(x.t()) - at::eye(8)).abs().max().item<double>();
  };
  EXPECT_GT(off(1), 0.7);
  EXPECT_LT(off(5), 0.6) << "singular values within sqrt(1 +- 0.6)";
  EXPECT_LT(off(5), off(2));
}

TEST(NewtonSchulz, ZeroStaysZero) {
  const at::Tensor x = orthogonalised(at::zeros({4, 9}), NewtonSchulz::Gram, 5);
  EXPECT_TRUE(at::equal(x, at::zeros({4, 9})));
}

}  // namespace
}  // namespace dsj::zero
