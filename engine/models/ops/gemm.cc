#include "engine/models/ops/gemm.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "engine/device/device.h"
#include "engine/device/products.h"
#include "engine/memory/counting_allocator.h"
#include "engine/models/ops/factors.h"
#include "engine/zero/flat/piece_sums.h"
#include "job/layout/row_pieces.h"

namespace dsj::models::gemm {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(at::kFloat);
}

using Scratch = memory::MemoryScope;

/// Whether this gradient is rounded to `type`, the product's, before it is added: torch_autocast in
/// fp16. There torch's autograd writes it in fp16, so it overflows from 65,520 on.
bool narrows(const zero::GradView& grad, at::ScalarType type) {
  return type == at::kHalf && grad.tensor.scalar_type() == at::kFloat && !grad.part;
}

/// sum [m, n] fp32 += a [m, k] b [k, n]. On a CPU libtorch rounds the product to their type.
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (!sum.is_cpu()) {
    at::addmm_out(sum, sum, a, b, at::kFloat);
  } else if (device::multiplies_itself(a, a.size(0), b.size(1), a.size(1))) {
    device::multiply(sum, a, b, {}, sum);
  } else {
    sum.add_(at::mm(a, b));
  }
}

/// Calls f(first, count) for tiles of the rows of w [o, i].
template <typename F>
void for_tiles(const at::Tensor& w, F f) {
  const int64_t tile = layout::sum_tile(!w.is_cpu());
  const int64_t rows = std::max<int64_t>(1, tile / std::max<int64_t>(1, w.size(1)));
  for (int64_t first = 0; first < w.size(0); first += rows)
    f(first, std::min(rows, w.size(0) - first));
}

/// out fp32 += 16-bit term. A CPU operation on both types would widen the term in uncounted memory.
void add_rounded(const at::Tensor& out, const at::Tensor& term) {
  const Scratch scratch(memory::Class::Buckets);
  out.add_(out.is_cpu() ? wide(term) : term);
}

/// Whether the engine's own product computes dw = dy^T x.
bool own_grad_weight(const at::Tensor& dy, const at::Tensor& x) {
  return device::multiplies_itself(dy, dy.size(1), x.size(1), dy.size(0));
}

/// dw fp32 (+)= dy^T x, rounded to the operands' type first, one tile at a time.
void rounded_grad_weight(const at::Tensor& dw, const at::Tensor& dy, const at::Tensor& x,
                         bool accumulate) {
  const bool own = own_grad_weight(dy, x);
  for_tiles(dw, [&](int64_t first, int64_t count) {
    at::Tensor product;
    {
      const Scratch scratch(memory::Class::Buckets);  // not the library's packing buffers
      product = at::empty({count, x.size(1)}, x.options());
    }
    const at::Tensor columns = dy.narrow(1, first, count).t();
    if (own)
      device::multiply(product, columns, x, {}, {});
    else
      at::mm_out(product, columns, x);
    const at::Tensor tile = dw.narrow(0, first, count);
    if (accumulate)
      add_rounded(tile, product);
    else
      tile.copy_(product);
  });
}

}  // namespace

at::Tensor as_factor(const at::Tensor& w, at::ScalarType type) {
  if (!w.defined() || w.scalar_type() == type) return w;
  const Scratch scratch(memory::Class::Buckets);
  return w.to(type);
}

bool native(const at::Tensor& tensor) {
  return device::of(tensor).multiplies(tensor.scalar_type());
}

void linear(at::Tensor out, const at::Tensor& x, const at::Tensor& weight,
            const at::Tensor& wide_bias) {
  const at::Tensor w = as_factor(weight, x.scalar_type());
  const at::Tensor bias = as_factor(wide_bias, x.scalar_type());
  if (device::multiplies_itself(x, x.size(0), w.size(0), w.size(1))) {
    device::multiply(out, x, w.t(), bias, {});
  } else if (bias.defined()) {
    at::addmm_out(out, bias, x, w.t());
  } else {
    at::mm_out(out, x, w.t());
  }
}

at::Tensor linear_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w) {
  at::Tensor out = at::empty(residual.sizes(), x.options());
  if (x.scalar_type() == at::kFloat) {
    if (device::multiplies_itself(x, x.size(0), w.size(0), w.size(1)))
      device::multiply(out, x, w.t(), {}, residual);
    else
      at::addmm_out(out, residual, x, w.t());
    return out;
  }
  linear(out, x, w);
  return added(residual, out);
}

void grad_input(at::Tensor out, const at::Tensor& dy, const at::Tensor& weight, bool accumulate) {
  const at::Tensor w = as_factor(weight, dy.scalar_type());
  if (device::multiplies_itself(dy, dy.size(0), w.size(1), w.size(0))) {
    device::multiply(out, dy, w, {}, accumulate ? out : at::Tensor());
  } else if (accumulate) {
    out.addmm_(dy, w);
  } else {
    at::mm_out(out, dy, w);
  }
}

void grad_weight(const zero::GradView& grad, const at::Tensor& dy, const at::Tensor& x) {
  at::Tensor dw = grad.tensor;
  const bool own = own_grad_weight(dy, x);
  if (dw.scalar_type() != dy.scalar_type() && (!own || narrows(grad, dy.scalar_type()))) {
    rounded_grad_weight(dw, dy, x, grad.accumulate);
  } else if (own) {
    device::multiply(dw, dy.t(), x, {}, grad.accumulate ? dw : at::Tensor());
  } else if (grad.accumulate) {
    dw.addmm_(dy.t(), x);
  } else {
    at::mm_out(dw, dy.t(), x);
  }
}

void grad_bias(const zero::GradView& grad, const at::Tensor& dy) {
  at::Tensor db = grad.tensor;
  if (narrows(grad, dy.scalar_type())) {
    const Scratch scratch(memory::Class::Buckets);
    const at::Tensor sum = dy.sum(0, false, db.scalar_type());
    sum.copy_(sum.to(dy.scalar_type()));
    grad.accumulate ? db.add_(sum) : db.copy_(sum);
  } else if (grad.accumulate) {
    db.add_(dy.sum(0, false, db.scalar_type()));
  } else {
    at::sum_out(db, dy, {0}, false, db.scalar_type());
  }
}

WeightSum::WeightSum(zero::GradView grad, at::ScalarType type, int64_t products)
    : grad_(std::move(grad)), left_(products) {
  if (!grad_.tensor.defined() || products < 2) return;
  const Scratch scratch(memory::Class::Buckets);
  if (grad_.tensor.scalar_type() != at::kFloat && !grad_.tensor.is_cpu())
    wide_ = grad_.accumulate
                ? wide(grad_.tensor)
                : at::zeros_like(grad_.tensor, grad_.tensor.options().dtype(at::kFloat));
  else if (grad_.tensor.scalar_type() != at::kFloat)
    lost_ = at::zeros_like(grad_.tensor);
  else if (narrows(grad_, type))
    wide_ = grad_.accumulate ? at::zeros_like(grad_.tensor) : grad_.tensor.zero_();
}

void WeightSum::add(const at::Tensor& dy, const at::Tensor& x) {
  if (!grad_.tensor.defined()) return;
  if (wide_.defined()) {
    add_wide(dy, x);
  } else if (!lost_.defined()) {
    grad_weight(grad_, dy, x);
  } else {
    const Scratch scratch(memory::Class::Buckets);
    for_tiles(grad_.tensor, [&](int64_t first, int64_t count) {
      const at::Tensor out = grad_.tensor.narrow(0, first, count);
      const at::Tensor lost = lost_.narrow(0, first, count);
      at::Tensor sum = wide(lost);
      if (grad_.accumulate) sum.add_(out);
      add_product(sum, dy.narrow(1, first, count).t(), x);
      out.copy_(sum);
      lost.copy_(sum.sub_(out));
    });
  }
  grad_.accumulate = true;
}

void WeightSum::add_wide(const at::Tensor& dy, const at::Tensor& x) {
  if (grad_.tensor.scalar_type() != at::kFloat) {
    add_product(wide_, dy.t(), x);
    if (--left_ == 0) grad_.tensor.copy_(std::exchange(wide_, {}));
    return;
  }
  grad_weight({wide_, /*accumulate=*/true, /*part=*/true}, dy, x);
  if (--left_ == 0) zero::add_rounded_sum(grad_.tensor, wide_, dy.scalar_type());
}

}  // namespace dsj::models::gemm
