#include "cli/tune/cost_model.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace dsj::tune {
namespace {

/// Shares of a step's time before any measurement.
constexpr double kGuess[] = {0.75, 0.1, 0.1, 0.05};
/// The weight of the guess, in measurements.
constexpr double kTrust = 0.1;

/// Solves a x = b for a symmetric positive definite matrix.
template <size_t N>
std::array<double, N> solve(std::array<std::array<double, N>, N> a, std::array<double, N> b) {
  for (size_t i = 0; i < N; ++i)
    for (size_t row = i + 1; row < N; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (size_t k = i; k < N; ++k) a[row][k] -= factor * a[i][k];
      b[row] -= factor * b[i];
    }
  for (size_t i = N; i-- > 0;) {
    for (size_t k = i + 1; k < N; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

CostModel::Terms CostModel::terms_of(const Counts& counts) {
  return {counts.products, counts.weights, counts.wire_bytes, counts.actions};
}

CostModel::CostModel(std::span<const Measured> all) {
  DSJ_CHECK(!all.empty());
  // A term that is 0 in the first is scaled by the first measurement that has it.
  for (const Measured& one : all) {
    const Terms terms = terms_of(one.counts);
    for (size_t i = 0; i < kTerms; ++i)
      if (scale_[i] == 0) scale_[i] = terms[i];
  }
  std::array<Terms, kTerms> a{};
  Terms b{};
  for (size_t i = 0; i < kTerms; ++i) {
    const double guess = kGuess[i] * all.front().seconds;
    const double trust = kTrust / (all.front().seconds * all.front().seconds);
    a[i][i] += trust;
    b[i] += trust * guess;
  }
  for (const Measured& one : all) {
    DSJ_CHECK(one.seconds > 0);
    Terms x = terms_of(one.counts);
    for (size_t i = 0; i < kTerms; ++i) x[i] /= (scale_[i] > 0 ? scale_[i] : 1) * one.seconds;
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t k = 0; k < kTerms; ++k) a[i][k] += x[i] * x[k];
      b[i] += x[i];
    }
  }
  weights_ = solve(a, b);
  for (double& weight : weights_) weight = std::max(weight, 0.0);
}

double CostModel::seconds(const Counts& counts) const {
  const Terms terms = terms_of(counts);
  double sum = 0;
  for (size_t i = 0; i < kTerms; ++i)
    if (scale_[i] > 0) sum += weights_[i] * terms[i] / scale_[i];
  return sum;
}

}  // namespace dsj::tune
