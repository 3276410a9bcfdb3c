#include "engine/models/ops/ops.h"

#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/device/device.h"

namespace dsj::models::ops {
namespace {

using device::On;
using device::values_of;
using kernels::Rows;

/// Contiguous rows.
Rows whole(const at::Tensor& tensor) {
  DSJ_CHECK(!tensor.defined() || tensor.is_contiguous());
  return device::rows_of(tensor);
}
/// The heads of each row, which are a part of it.
Rows heads(const at::Tensor& tensor) {
  return device::rows_of(tensor);
}

at::Tensor fp32(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}
/// Partial sums of a gradient over the rows of x: [partials, width] fp32.
at::Tensor partials(const On& on, const at::Tensor& x, int64_t width) {
  return at::empty({on.partials(x.size(0)), width}, x.options().dtype(at::kFloat));
}

/// gradient (+)= the sum of its partial sums, unless it is undefined (frozen).
void add_up(const On& on, const at::Tensor& partial, const at::Tensor& gradient, bool accumulate) {
  if (!gradient.defined()) return;
  on.run(kernels::SumRows{
      .partial = whole(partial), .out = device::row_of(gradient), .accumulate = accumulate});
}

}  // namespace

Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps) {
  const On on(x);
  Normed out{at::empty_like(x), fp32(x, {x.size(0)}), {}};
  on.run(kernels::RmsNorm{.x = whole(x),
                          .w = whole(w),
                          .y = whole(out.y),
                          .rstd = values_of<float>(out.rstd),
                          .eps = static_cast<float>(eps)});
  return out;
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw) {
  const On on(x);
  const at::Tensor partial = partials(on, x, x.size(1));
  on.run(kernels::RmsNormBackward{.dy = whole(dy),
                                  .x = whole(x),
                                  .w = whole(w),
                                  .rstd = values_of<const float>(rstd),
                                  .dx = whole(dx),
                                  .dw = whole(partial)});
  add_up(on, partial, dw, accumulate_dw);
}

Normed layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps) {
  const On on(x);
  Normed out{at::empty_like(x), fp32(x, {x.size(0)}), fp32(x, {x.size(0)})};
  on.run(kernels::LayerNorm{.x = whole(x),
                            .w = whole(w),
                            .b = whole(b),
                            .y = whole(out.y),
                            .mean = values_of<float>(out.mean),
                            .rstd = values_of<float>(out.rstd),
                            .eps = static_cast<float>(eps)});
  return out;
}

void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const Normed& normed, at::Tensor dx, at::Tensor dw, at::Tensor db,
                         bool accumulate) {
  const On on(x);
  const at::Tensor dw_partial = partials(on, x, x.size(1)), db_partial = partials(on, x, x.size(1));
  on.run(kernels::LayerNormBackward{.dy = whole(dy),
                                    .x = whole(x),
                                    .w = whole(w),
                                    .mean = values_of<const float>(normed.mean),
                                    .rstd = values_of<const float>(normed.rstd),
                                    .dx = whole(dx),
                                    .dw = whole(dw_partial),
                                    .db = whole(db_partial)});
  add_up(on, dw_partial, dw, accumulate);
  add_up(on, db_partial, db, accumulate);
}

at::Tensor head_norm(at::Tensor x, const at::Tensor& w, int64_t count, double eps) {
  const On on(x);
  at::Tensor rstd = fp32(x, {x.size(0), count});
  on.run(kernels::HeadNorm{.x = heads(x),
                           .w = whole(w),
                           .heads = count,
                           .rstd = values_of<float>(rstd),
                           .eps = static_cast<float>(eps)});
  return rstd;
}

void head_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                        const at::Tensor& rstd, at::Tensor dw, bool accumulate_dw) {
  const On on(x);
  const at::Tensor partial = partials(on, x, w.size(0));
  on.run(kernels::HeadNormBackward{.dy = heads(dy),
                                   .x = heads(x),
                                   .w = whole(w),
                                   .heads = rstd.size(1),
                                   .rstd = values_of<const float>(rstd),
                                   .dw = whole(partial)});
  add_up(on, partial, dw, accumulate_dw);
}

namespace {

/// Rotates a part of each head, or adjacent elements, by libtorch operations.
void rope_parts(const at::Tensor& x, const RopeTable& table, const at::Tensor& positions,
                int64_t count, int64_t dim, bool inverse) {
  const int64_t half = table.cos.size(1);
  const at::Tensor part =
      x.narrow(1, 0, count * dim).unflatten(1, {count, dim}).narrow(2, 0, 2 * half);
  const at::Tensor pairs = table.in_pairs ? part.unflatten(2, {half, 2}) : part;
  const at::Tensor a = table.in_pairs ? pairs.select(3, 0) : part.narrow(2, 0, half);
  const at::Tensor b = table.in_pairs ? pairs.select(3, 1) : part.narrow(2, half, half);
  const at::Tensor cos = table.cos.index_select(0, positions).unsqueeze(1);
  const at::Tensor sin = table.sin.index_select(0, positions).unsqueeze(1);
  const at::Tensor turned = inverse ? a * cos + b * sin : a * cos - b * sin;
  b.copy_(inverse ? b * cos - a * sin : b * cos + a * sin);
  a.copy_(turned);
}

}  // namespace

void rope(at::Tensor x, const RopeTable& table, const at::Tensor& positions, int64_t count,
          int64_t dim, bool inverse) {
  DSJ_CHECK(positions.size(0) == x.size(0));
  if (table.in_pairs || 2 * table.cos.size(1) != dim)
    return rope_parts(x, table, positions, count, dim, inverse);
  On(x).run(kernels::Rope{.x = heads(x),
                          .cos = values_of<const float>(table.cos),
                          .sin = values_of<const float>(table.sin),
                          .positions = values_of<const int64_t>(positions),
                          .heads = count,
                          .dim = dim,
                          .sign = inverse ? -1.0f : 1.0f});
}

namespace {

using layout::Activation;

at::Tensor act(const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return at::silu(x);
    case Activation::GeluTanh:
      return at::gelu(x, "tanh");
    case Activation::Gelu:
      return at::gelu(x);
    case Activation::Relu:
      return at::relu(x);
    case Activation::Relu2:
      return at::relu(x).square_();
    case Activation::Xielu:  // it has parameters (xielu.h)
      break;
  }
  DSJ_CHECK(false);
}

at::Tensor act_backward(const at::Tensor& dy, const at::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::Silu:
      return at::silu_backward(dy, x);
    case Activation::GeluTanh:
      return at::gelu_backward(dy, x, "tanh");
    case Activation::Gelu:
      return at::gelu_backward(dy, x);
    case Activation::Relu:
      return at::threshold_backward(dy, x, 0);
    case Activation::Relu2:
      return at::relu(x).mul_(2).mul_(dy);
    case Activation::Xielu:
      break;
  }
  DSJ_CHECK(false);
}

}  // namespace

at::Tensor activated(const at::Tensor& inner, Activation activation, bool gated) {
  if (!gated) return act(inner, activation);
  if (activation == Activation::Silu) return swiglu(inner);
  const int64_t width = inner.size(1) / 2;
  return act(inner.narrow(1, 0, width), activation).mul_(inner.narrow(1, width, width));
}

void activated_backward(const at::Tensor& da, at::Tensor inner, Activation activation, bool gated) {
  if (!gated) {
    inner.copy_(act_backward(da, inner, activation));
    return;
  }
  if (activation == Activation::Silu) return swiglu_backward(da, std::move(inner));
  const int64_t width = inner.size(1) / 2;
  const at::Tensor gate = inner.narrow(1, 0, width), up = inner.narrow(1, width, width);
  const at::Tensor dgate = act_backward(da * up, gate, activation);
  up.copy_(act(gate, activation).mul_(da));
  gate.copy_(dgate);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  at::Tensor a = at::empty({gate_up.size(0), gate_up.size(1) / 2}, gate_up.options());
  On(a).run(kernels::Swiglu{.gate_up = whole(gate_up), .a = whole(a)});
  return a;
}

void swiglu_backward(const at::Tensor& da, at::Tensor gate_up) {
  On(da).run(kernels::SwigluBackward{.da = whole(da), .gate_up = whole(gate_up)});
}

at::Tensor gelu_new(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
  On(x).run(kernels::GeluNew{.x = whole(x), .y = whole(y)});
  return y;
}

void gelu_new_backward(const at::Tensor& dy, at::Tensor x) {
  On(x).run(kernels::GeluNewBackward{.dy = whole(dy), .x = whole(x)});
}

void cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale, at::Tensor loss) {
  DSJ_CHECK(labels.size(0) == logits.size(0));
  On(logits).run(kernels::CrossEntropy{.logits = whole(logits),
                                       .labels = values_of<const int64_t>(labels),
                                       .scale = static_cast<float>(scale),
                                       .loss = loss.data_ptr<double>()});
}

void scatter_rows(const at::Tensor& x, const at::Tensor& index, at::Tensor out) {
  DSJ_CHECK(index.size(0) == x.size(0));
  On(x).run(kernels::ScatterRows{
      .x = whole(x), .index = values_of<const int64_t>(index), .out = whole(out)});
}

}  // namespace dsj::models::ops
