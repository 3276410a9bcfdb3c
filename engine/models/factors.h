// torch_autocast in a unit: what enters a matrix product is in the products' type, what norms read
// and units pass on in the parameters' type. Which types these are, the config says once
// (dsconfig::product_type); without autocast they are one type, and nothing here copies.
// Tested by: tests/engine/train/autocast_test.cc
#pragma once

#include <ATen/ATen.h>

#include "engine/models/ops.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// A norm whose output is a product's input: y in the products' type.
inline ops::Normed as_factor(const zero::UnitParameters& p, ops::Normed normed) {
  normed.y = normed.y.to(p.product_type());
  return normed;
}

/// residual + out, in the residual's type; `out` becomes the sum where it has that type.
inline at::Tensor added(const at::Tensor& residual, at::Tensor out) {
  return out.scalar_type() == residual.scalar_type() ? out.add_(residual) : at::add(residual, out);
}

/// The gradient of a norm's output as the norm's backward reads it: in the type of its input x.
inline at::Tensor as_read(const at::Tensor& dy, const at::Tensor& x) {
  return dy.to(x.scalar_type());
}

/// Columns of a product that are worked on in another type (head norms, rope), mostly the
/// parameters'. Where that is the product's type, the columns themselves; else a copy, which back()
/// rounds into them.
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
