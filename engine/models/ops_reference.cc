#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "engine/models/ops.h"

namespace dsj::models::ops::reference {

Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = wide.square().mean(-1).add_(eps).rsqrt_();
  return {w * (wide * rstd.unsqueeze(-1)).to(x.scalar_type()), rstd, {}};
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw) {
  const at::Tensor scale = rstd.unsqueeze(-1);
  const at::Tensor normed = x.to(at::kFloat) * scale;
  const at::Tensor dnormed = (dy * w).to(at::kFloat);
  const at::Tensor mean = (dnormed * normed).mean(-1, /*keepdim=*/true);
  dx.add_((scale * (dnormed - normed * mean)).to(dx.scalar_type()));
  if (!dw.defined()) return;
  const at::Tensor gradient =
      (dy.to(at::kFloat) * normed.to(x.scalar_type()).to(at::kFloat)).sum(0).to(dw.scalar_type());
  accumulate_dw ? dw.add_(gradient) : dw.copy_(gradient);
}

Normed layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps) {
  const at::Tensor wide = x.to(at::kFloat), mean = wide.mean(-1);
  const at::Tensor centered = wide - mean.unsqueeze(-1);
  const at::Tensor rstd = centered.square().mean(-1).add_(eps).rsqrt_();
  const at::Tensor y = centered * rstd.unsqueeze(-1) * w.to(at::kFloat) + b.to(at::kFloat);
  return {y.to(x.scalar_type()), rstd, mean};
}

void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const Normed& normed, at::Tensor dx, at::Tensor dw, at::Tensor db,
                         bool accumulate) {
  const at::Tensor scale = normed.rstd.unsqueeze(-1), wide = dy.to(at::kFloat);
  const at::Tensor unit = (x.to(at::kFloat) - normed.mean.unsqueeze(-1)) * scale;
  const at::Tensor dunit = wide * w.to(at::kFloat);
  const at::Tensor inner = dunit - dunit.mean(-1, true) - unit * (dunit * unit).mean(-1, true);
  dx.add_((scale * inner).to(dx.scalar_type()));
  const at::Tensor weight = (wide * unit).sum(0).to(x.scalar_type());
  const at::Tensor bias = wide.sum(0).to(x.scalar_type());
  if (dw.defined()) accumulate ? dw.add_(weight) : dw.copy_(weight);
  if (db.defined()) accumulate ? db.add_(bias) : db.copy_(bias);
}

at::Tensor head_norm(at::Tensor x, const at::Tensor& w, int64_t heads, double eps) {
  at::Tensor view = x.narrow(1, 0, heads * w.size(0)).unflatten(1, {heads, w.size(0)});
  const Normed normed = rms_norm(view, w, eps);
  view.copy_(normed.y);
  return normed.rstd;
}

void head_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                        const at::Tensor& rstd, at::Tensor dw, bool accumulate_dw) {
  const int64_t heads = rstd.size(1), dim = w.size(0), rows = x.size(0) * heads;
  at::Tensor part = dy.narrow(1, 0, heads * dim);
  const at::Tensor flat_dy = part.reshape({rows, dim});
  at::Tensor dx = at::zeros_like(flat_dy);
  rms_norm_backward(flat_dy, x.narrow(1, 0, heads * dim).reshape({rows, dim}), w,
                    rstd.reshape({rows}), dx, dw, accumulate_dw);
  part.copy_(dx.view({x.size(0), heads * dim}));
}

void rope(at::Tensor x, const RopeTable& table, int64_t heads, bool inverse) {
  const int64_t half = table.cos.size(1), seq = table.cos.size(0), rows = x.size(0);
  at::Tensor view = x.narrow(1, 0, heads * 2 * half)
                        .unflatten(1, {heads, 2, half})
                        .unflatten(0, {rows / seq, seq});
  const at::Tensor cos = table.cos.to(x.scalar_type()).view({1, seq, 1, half});
  at::Tensor sin = table.sin.to(x.scalar_type()).view({1, seq, 1, half});
  if (inverse) sin = -sin;
  const at::Tensor lo = view.select(3, 0).clone(), hi = view.select(3, 1).clone();
  view.select(3, 0).copy_(lo * cos + -hi * sin);
  view.select(3, 1).copy_(hi * cos + lo * sin);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto parts = gate_up.chunk(2, 1);
  return at::silu(parts[0]) * parts[1];
}

void swiglu_backward(const at::Tensor& da, at::Tensor gate_up) {
  const auto parts = gate_up.chunk(2, 1);
  const at::Tensor gate = parts[0].clone(), up = parts[1].clone();
  parts[0].copy_(at::silu_backward(da * up, gate));
  parts[1].copy_(da * at::silu(gate));
}

at::Tensor gelu_new(const at::Tensor& x) {
  const at::Tensor inner = (at::pow(x, 3.0) * 0.044715 + x) * std::sqrt(2 / std::numbers::pi);
  return x * 0.5 * (at::tanh(inner) + 1.0);
}

void gelu_new_backward(const at::Tensor& dy, at::Tensor x) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor gradient = at::gelu_backward(dy.to(at::kFloat), wide, "tanh");
  x.copy_(gradient);
}

double cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale) {
  const at::Tensor log_softmax = logits.to(at::kFloat).log_softmax(-1);
  const at::Tensor index = labels.unsqueeze(-1);
  const double loss = -log_softmax.gather(-1, index).sum(at::kDouble).item<double>();
  at::Tensor gradient = log_softmax.exp();
  gradient.scatter_add_(-1, index, at::full_like(index, -1.0, gradient.options()));
  logits.copy_(gradient.mul_(scale));
  return loss;
}

}  // namespace dsj::models::ops::reference
