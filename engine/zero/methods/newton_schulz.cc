#include "engine/zero/methods/newton_schulz.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace dsj::zero {
namespace {

using dsconfig::NewtonSchulz;

constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;
constexpr int kRestart = 2;  ///< after this step the Gram form recomputes X and R, as errors grow

/// Arithmetic in one type. On a CPU the tensors are fp32 and each result is rounded to the type.
class Numbers {
 public:
  Numbers(at::ScalarType type, bool cpu) : type_(type), rounds_(cpu && type != at::kFloat) {}

  at::ScalarType stored() const { return rounds_ ? at::kFloat : type_; }
  at::Tensor rounded(at::Tensor x) const {
    if (rounds_) x.copy_(x.to(type_));
    return x;
  }
  at::Tensor product(const at::Tensor& x, const at::Tensor& y) const {
    return rounded(at::mm(x, y));
  }
  at::Tensor times(const at::Tensor& x, double factor) const { return rounded(x.mul(factor)); }
  /// factor * x + y; overwrites y.
  at::Tensor sum(const at::Tensor& x, double factor, at::Tensor y) const {
    return rounded(y.add_(times(x, factor)));
  }

 private:
  const at::ScalarType type_;
  const bool rounds_;
};

/// b R + c R R.
at::Tensor quadratic(const Numbers& in, const at::Tensor& r) {
  return in.sum(r, kB, in.product(in.times(r, kC), r));
}

at::Tensor standard(const Numbers& in, at::Tensor x, int steps) {
  for (int step = 0; step < steps; ++step) {
    const at::Tensor b = quadratic(in, in.product(x, x.t()));
    x = in.sum(x, kA, in.product(b, x));
  }
  return x;
}

at::Tensor gram(const Numbers& in, at::Tensor x, int steps) {
  at::Tensor r = in.product(x, x.t()), q;  // q: pending factor of x
  for (int step = 0; step < steps; ++step) {
    if (step == kRestart) {
      x = in.product(q, x);
      r = in.product(x, x.t());
      q.reset();
    }
    const at::Tensor z = quadratic(in, r);
    if (q.defined()) {
      q = in.sum(q, kA, in.product(z, q));
    } else {
      q = z.clone();
      q.diagonal().add_(kA);
      q = in.rounded(q);
    }
    if (step + 1 == steps || step + 1 == kRestart) continue;
    const at::Tensor rz = in.sum(r, kA, in.product(z, r));
    r = in.sum(rz, kA, in.product(z, rz));
  }
  return in.product(q, x);
}

}  // namespace

at::Tensor orthogonalised(const at::Tensor& matrix, NewtonSchulz method, int steps) {
  DSJ_CHECK(matrix.dim() == 2 && matrix.scalar_type() == at::kFloat && steps > 0);
  const bool cpu = matrix.is_cpu(), tall = matrix.size(0) > matrix.size(1);
  const bool by_gram = method == NewtonSchulz::Gram;
  const Numbers in(!by_gram ? at::kBFloat16 : cpu ? at::kFloat : at::kHalf, cpu);
  at::Tensor x = tall ? matrix.t() : matrix;
  if (by_gram) {  // normalised before the cast: fp16 has a smaller range
    x = x.div(x.norm().add_(1e-7)).to(in.stored());
  } else {
    x = in.rounded(x.clone()).to(in.stored());
    const at::Tensor norm = in.rounded(in.rounded(x.norm()).add_(1e-7));
    x = in.rounded(x.div_(norm));
  }
  const bool square = x.size(0) == x.size(1);
  x = by_gram && !square ? gram(in, std::move(x), steps) : standard(in, std::move(x), steps);
  const double ratio = static_cast<double>(matrix.size(0)) / static_cast<double>(matrix.size(1));
  x = in.rounded(x.mul_(std::sqrt(std::max(1.0, ratio))));
  return (tall ? x.t() : x).to(at::kFloat);
}

}  // namespace dsj::zero
