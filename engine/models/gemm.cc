#include "engine/models/gemm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "engine/device/device.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::models::gemm {
namespace {

at::Tensor wide(const at::Tensor& tensor) {
  return tensor.to(at::kFloat);
}

/// fp32 copies and products are scratch for one product.
using Scratch = memory::MemoryScope;

/// Elements of a tile of a weight: 1 MiB in fp32, which stays in a core's cache between being
/// widened and being used. job/plan/activation_model.cc counts with it.
constexpr int64_t kTile = 256 << 10;
/// On a GPU each tile costs launches. job/roofline/recorder.h counts with it.
constexpr int64_t kTileThere = int64_t{16} << 20;

/// Calls f(first, count) for tiles of the rows of w [o, i].
template <typename F>
void for_tiles(const at::Tensor& w, F f) {
  const int64_t tile = w.is_cpu() ? kTile : kTileThere;
  const int64_t rows = std::max<int64_t>(1, tile / std::max<int64_t>(1, w.size(1)));
  for (int64_t first = 0; first < w.size(0); first += rows)
    f(first, std::min(rows, w.size(0) - first));
}

/// dy^T x of a tile, in fp32 or rounded to dy's type: what the device multiplies.
at::Tensor tile_of_product(const at::Tensor& dy, const at::Tensor& x, int64_t first,
                           int64_t count) {
  const at::Tensor tile = dy.narrow(1, first, count);
  return at::mm((x.scalar_type() == at::kFloat ? wide(tile) : tile).t(), x);
}

}  // namespace

bool native(const at::Tensor& tensor) {
  return device::of(tensor).multiplies(tensor.scalar_type());
}

void linear(at::Tensor out, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  if (!native(x)) {
    const Scratch scratch(memory::Class::Buckets);
    const at::Tensor wide_x = wide(x);
    for_tiles(w, [&](int64_t first, int64_t count) {
      at::Tensor product = at::mm(wide_x, wide(w.narrow(0, first, count)).t());
      if (bias.defined()) product.add_(wide(bias.narrow(0, first, count)));
      out.narrow(1, first, count).copy_(product);
    });
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
    at::Tensor product = at::zeros(out.sizes(), out.options().dtype(at::kFloat));
    for_tiles(w, [&](int64_t first, int64_t count) {
      product.addmm_(wide(dy.narrow(1, first, count)), wide(w.narrow(0, first, count)));
    });
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
    const at::Tensor wide_x = wide(x);
    for_tiles(dw, [&](int64_t first, int64_t count) {
      const at::Tensor product = tile_of_product(dy, wide_x, first, count);
      at::Tensor out = dw.narrow(0, first, count);
      accumulate ? out.add_(product.to(out.scalar_type())) : out.copy_(product);
    });
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

WeightSum::WeightSum(zero::GradView grad, int64_t products) : grad_(std::move(grad)) {
  if (!grad_.tensor.defined() || grad_.tensor.scalar_type() == at::kFloat || products < 2) return;
  const Scratch scratch(memory::Class::Buckets);
  lost_ = at::zeros_like(grad_.tensor);
}

void WeightSum::add(const at::Tensor& dy, const at::Tensor& x) {
  if (!grad_.tensor.defined()) return;
  if (!lost_.defined()) {
    grad_weight(grad_.tensor, dy, x, grad_.accumulate);
  } else {
    const Scratch scratch(memory::Class::Buckets);
    const at::Tensor operand = native(x) ? x : wide(x);
    for_tiles(grad_.tensor, [&](int64_t first, int64_t count) {
      const at::Tensor out = grad_.tensor.narrow(0, first, count);
      const at::Tensor lost = lost_.narrow(0, first, count);
      at::Tensor sum = wide(tile_of_product(dy, operand, first, count)).add_(lost);
      if (grad_.accumulate) sum.add_(out);
      out.copy_(sum);
      lost.copy_(sum.sub_(out));
    });
  }
  grad_.accumulate = true;
}

}  // namespace dsj::models::gemm
