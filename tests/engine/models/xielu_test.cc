// The activation against its formula in double precision, and its gradients against differences of it.
// transformers' numbers are in tiny-apertus (tests/engine/train/model_oracle_test.cc).
#include "engine/models/ops/xielu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace dsj::models {
namespace {

struct Plain {
  double alpha_p = 0.3, alpha_n = -0.4, beta = 0.7, eps = -1e-3;
  double of(double x) const {
    const double p = std::log1p(std::exp(alpha_p)), n = beta + std::log1p(std::exp(alpha_n));
    return x > 0 ? p * x * x + beta * x : n * (std::expm1(std::fmin(x, eps)) - x) + beta * x;
  }
  XieluNumbers numbers() const {
    const auto one = [](double value) { return at::full({1}, value, at::kFloat); };
    return {one(alpha_p), one(alpha_n), one(beta), one(eps)};
  }
};

const std::vector<double> kPoints = {-30, -3.5, -1, -0.25, -2e-3, -5e-4, 0, 1e-4, 0.5, 2, 17};

at::Tensor points() {
  return at::tensor(kPoints, at::kDouble).to(at::kFloat).view({1, -1});
}

TEST(Xielu, IsItsFormula) {
  const Plain plain;
  const at::Tensor y = xielu(points(), plain.numbers());
  for (size_t i = 0; i < kPoints.size(); ++i) {
    const double want = plain.of(kPoints[i]);
    EXPECT_NEAR(y[0][static_cast<int64_t>(i)].item<double>(), want, 1e-6 * (1 + std::fabs(want)))
        << kPoints[i];
  }
}

TEST(Xielu, GradientsAreDifferences) {
  const Plain plain;
  at::Tensor x = points();
  const at::Tensor dy = at::arange(1, x.numel() + 1, at::kFloat).view_as(x);
  const auto gradients = xielu_backward(dy, x, plain.numbers());
  const double h = 1e-6;
  const auto loss = [&](const Plain& at) {
    double sum = 0;
    for (size_t i = 0; i < kPoints.size(); ++i)
      sum += static_cast<double>(i + 1) * at.of(kPoints[i]);
    return sum;
  };
  for (size_t i = 0; i < kPoints.size(); ++i) {
    if (kPoints[i] == 0) continue;  // the formula has an edge there
    const double slope = (plain.of(kPoints[i] + h) - plain.of(kPoints[i] - h)) / (2 * h);
    const double want = static_cast<double>(i + 1) * slope;
    EXPECT_NEAR(x[0][static_cast<int64_t>(i)].item<double>(), want, 1e-5 * (1 + std::fabs(want)))
        << kPoints[i];
  }
  for (const auto& [member, got] : {std::pair{&Plain::alpha_p, gradients.alpha_p},
                                    std::pair{&Plain::alpha_n, gradients.alpha_n}}) {
    Plain above = plain, below = plain;
    above.*member += h;
    below.*member -= h;
    const double want = (loss(above) - loss(below)) / (2 * h);
    EXPECT_EQ(got.sizes(), at::IntArrayRef({1}));
    EXPECT_NEAR(got.item<double>(), want, 1e-5 * std::fabs(want));
  }
}

TEST(Xielu, RoundsOnce) {
  const Plain plain;
  const at::Tensor x = points().to(at::kBFloat16);
  EXPECT_TRUE(
      xielu(x, plain.numbers()).equal(xielu(x.to(at::kFloat), plain.numbers()).to(at::kBFloat16)));
}

}  // namespace
}  // namespace dsj::models
