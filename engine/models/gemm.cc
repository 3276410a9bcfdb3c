#include "engine/models/gemm.h"

#include <ATen/ATen.h>

#include "engine/device/device.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::models::gemm {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(at::kFloat);
}

/// fp32 copies and products are scratch for one product.
using Scratch = memory::MemoryScope;

}  // namespace

bool native(const at::Tensor& tensor) {
  return device::of(tensor).multiplies(tensor.scalar_type());
}

void linear(at::Tensor out, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  if (!native(x)) {
    const Scratch scratch(memory::Class::Buckets);
    at::Tensor wide_out = at::mm(wide(x), wide(w).t());
    if (bias.defined()) wide_out.add_(bias.to(at::kFloat));
    out.copy_(wide_out);
  } else if (bias.defined()) {
    at::addmm_out(out, bias, x, w.t());
  } else {
    at::mm_out(out, x, w.t());
  }
}

at::Tensor linear_add(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& w) {
  if (x.scalar_type() == at::kFloat) return at::addmm(residual, x, w.t());
  at::Tensor out = at::empty_like(residual);
  linear(out, x, w);
  return out.add_(residual);
}

void grad_input(at::Tensor out, const at::Tensor& dy, const at::Tensor& w, bool accumulate) {
  if (!native(dy)) {
    const Scratch scratch(memory::Class::Buckets);
    const at::Tensor product = at::mm(wide(dy), wide(w));
    accumulate ? out.add_(product.to(out.scalar_type())) : out.copy_(product);
  } else if (accumulate) {
    out.addmm_(dy, w);
  } else {
    at::mm_out(out, dy, w);
  }
}

void grad_weight(at::Tensor dw, const at::Tensor& dy, const at::Tensor& x, bool accumulate) {
  if (!native(dy)) {
    const Scratch scratch(memory::Class::Buckets);
    const at::Tensor product = at::mm(wide(dy).t(), wide(x));
    accumulate ? dw.add_(product.to(dw.scalar_type())) : dw.copy_(product);
  } else if (accumulate) {
    dw.addmm_(dy.t(), x);
  } else {
    at::mm_out(dw, dy.t(), x);
  }
}

void grad_bias(at::Tensor db, const at::Tensor& dy, bool accumulate) {
  if (accumulate) {
    db.add_(dy.sum(0));
  } else {
    at::sum_out(db, dy, {0});
  }
}

}  // namespace dsj::models::gemm
