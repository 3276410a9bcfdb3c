// torch_autocast in a unit: inputs of matrix products are in the products' type; inputs of norms
// and activations between units are in the parameters' type (dsconfig::product_type). Without
// autocast both types are equal, and nothing here copies.
// Tested by: tests/engine/train/autocast_test.cc
#pragma once

#include <ATen/ATen.h>

#include "engine/models/ops/ops.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// A norm whose output is the input of a product: y in the products' type.
inline ops::Normed as_factor(const zero::UnitParameters& p, ops::Normed normed) {
  normed.y = normed.y.to(p.product_type());
  return normed;
}

/// residual + out, in the residual's type; `out` is overwritten with the sum if it has that type.
inline at::Tensor added(const at::Tensor& residual, at::Tensor out) {
  return out.scalar_type() == residual.scalar_type() ? out.add_(residual) : at::add(residual, out);
}

/// The gradient of a norm's output in the type that its backward takes: that of its input x.
inline at::Tensor as_read(const at::Tensor& dy, const at::Tensor& x) {
  return dy.to(x.scalar_type());
}

/// Columns of a product that are processed in another type (head norms, rope), usually the
/// parameters'. If the types are equal, tensor() is the columns themselves; else it is a copy,
/// which back() rounds into them.
class Widened {
 public:
  Widened(at::ScalarType type, const at::Tensor& columns)
      : columns_(columns), wide_(columns.to(type)) {}
  const at::Tensor& tensor() const { return wide_; }
  void back() const {
    if (!wide_.is_same(columns_)) columns_.copy_(wide_);
  }

 private:
  at::Tensor columns_, wide_;
};

}  // namespace dsj::models
