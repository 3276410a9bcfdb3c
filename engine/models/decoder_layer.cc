#include <ATen/ATen.h>

#include "engine/models/gemm.h"
#include "engine/models/unit.h"

namespace dsj::models {
namespace {

/// Parameters of a layer, in the order of layout::units_of with qkv biases.
enum Index { kNorm1, kQ, kK, kV, kQBias, kKBias, kVBias, kO, kNorm2, kGate, kUp, kDown };
/// Without biases everything after kV moves down by three.
int index(Index i, bool bias) {
  return bias || i <= kV ? i : i - 3;
}

/// Columns of one projection inside a fused result.
struct Part {
  int parameter;
  int64_t first, size;
};

}  // namespace

ops::Attention DecoderLayer::shape(int64_t rows, int64_t batch) const {
  return {batch, rows / batch, config_.num_heads, config_.num_kv_heads, config_.head_dim};
}

at::Tensor DecoderLayer::project_qkv(const zero::UnitParameters& p, const at::Tensor& h) const {
  const int64_t q = config_.query_size(), kv = config_.kv_size();
  at::Tensor qkv = at::empty({h.size(0), q + 2 * kv}, h.options());
  const at::Tensor w = p.stacked_weight(kQ, 3);
  const at::Tensor b = config_.qkv_bias ? p.stacked_weight(kQBias, 3) : at::Tensor();
  if (w.defined() && (b.defined() || !config_.qkv_bias)) {
    gemm::linear(qkv, h, w, b);
    return qkv;
  }
  const Part parts[] = {{kQ, 0, q}, {kK, q, kv}, {kV, q + kv, kv}};
  for (const auto& [parameter, first, size] : parts) {
    const at::Tensor bias = config_.qkv_bias ? p.weight(parameter + 3) : at::Tensor();
    gemm::linear(qkv.narrow(1, first, size), h, p.weight(parameter), bias);
  }
  return qkv;
}

at::Tensor DecoderLayer::project_gate_up(const zero::UnitParameters& p, const at::Tensor& h) const {
  const int64_t inner = config_.intermediate_size;
  const int gate = index(kGate, config_.qkv_bias);
  at::Tensor out = at::empty({h.size(0), 2 * inner}, h.options());
  if (const at::Tensor w = p.stacked_weight(gate, 2); w.defined()) {
    gemm::linear(out, h, w);
  } else {
    gemm::linear(out.narrow(1, 0, inner), h, p.weight(gate));
    gemm::linear(out.narrow(1, inner, inner), h, p.weight(gate + 1));
  }
  return out;
}

at::Tensor DecoderLayer::forward(const zero::UnitParameters& p, const at::Tensor& x,
                                 const ops::RopeTable& rope, int64_t batch,
                                 LayerSaved* saved) const {
  const bool bias = config_.qkv_bias;
  ops::Normed norm1 = ops::rms_norm(x, p.weight(kNorm1), config_.rms_norm_eps);
  at::Tensor qkv = project_qkv(p, norm1.y);
  ops::rope(qkv, rope, config_.num_heads + config_.num_kv_heads, /*inverse=*/false);
  ops::Attended attended = ops::attention(qkv, shape(x.size(0), batch));
  at::Tensor x2 = gemm::linear_add(x, attended.out, p.weight(index(kO, bias)));
  if (saved) {
    saved->x = x;
    saved->rstd1 = norm1.rstd;
    saved->h1 = norm1.y;
    saved->qkv = qkv;
    saved->attended = attended;
    saved->x2 = x2;
  }
  norm1 = {};
  attended = {};
  qkv.reset();
  ops::Normed norm2 = ops::rms_norm(x2, p.weight(index(kNorm2, bias)), config_.rms_norm_eps);
  at::Tensor gate_up = project_gate_up(p, norm2.y);
  if (saved) {
    saved->rstd2 = norm2.rstd;
    saved->h2 = norm2.y;
    saved->gate_up = gate_up;
  }
  return gemm::linear_add(x2, ops::swiglu(gate_up), p.weight(index(kDown, bias)));
}

void DecoderLayer::backward_mlp(const zero::UnitParameters& p, at::Tensor dy,
                                LayerSaved& saved) const {
  const bool bias = config_.qkv_bias;
  const int gate = index(kGate, bias), down = index(kDown, bias), norm = index(kNorm2, bias);
  const int64_t inner = config_.intermediate_size;
  at::Tensor da = at::empty({dy.size(0), inner}, dy.options());
  {
    const auto grad = p.grad(down);
    gemm::grad_weight(grad.tensor, dy, ops::swiglu(saved.gate_up), grad.accumulate);
  }
  gemm::grad_input(da, dy, p.weight(down), false);
  at::Tensor dgate_up = std::move(saved.gate_up);
  ops::swiglu_backward(da, dgate_up);
  da.reset();
  at::Tensor dh = at::empty_like(saved.h2);
  const at::Tensor w = p.stacked_weight(gate, 2);
  if (const auto grad = p.stacked_grad(gate, 2); w.defined() && grad.tensor.defined()) {
    gemm::grad_weight(grad.tensor, dgate_up, saved.h2, grad.accumulate);
    gemm::grad_input(dh, dgate_up, w, false);
  } else {
    for (int i = 0; i < 2; ++i) {
      const at::Tensor part = dgate_up.narrow(1, i * inner, inner);
      const auto one = p.grad(gate + i);
      gemm::grad_weight(one.tensor, part, saved.h2, one.accumulate);
      gemm::grad_input(dh, part, p.weight(gate + i), i > 0);
    }
  }
  const auto grad = p.grad(norm);
  ops::rms_norm_backward(dh, saved.x2, p.weight(norm), saved.rstd2, dy, grad.tensor,
                         grad.accumulate);
  saved.x2.reset();
  saved.h2.reset();
}

void DecoderLayer::backward_attention(const zero::UnitParameters& p, at::Tensor dy,
                                      const ops::RopeTable& rope, int64_t batch,
                                      LayerSaved& saved) const {
  const int64_t q = config_.query_size(), kv = config_.kv_size();
  const int out = index(kO, config_.qkv_bias);
  at::Tensor dattended = at::empty_like(saved.attended.out);
  {
    const auto grad = p.grad(out);
    gemm::grad_weight(grad.tensor, dy, saved.attended.out, grad.accumulate);
    gemm::grad_input(dattended, dy, p.weight(out), false);
  }
  at::Tensor dqkv =
      ops::attention_backward(dattended, saved.qkv, saved.attended, shape(dy.size(0), batch));
  saved.qkv.reset();
  saved.attended = {};
  ops::rope(dqkv, rope, config_.num_heads + config_.num_kv_heads, /*inverse=*/true);
  at::Tensor dh = at::empty_like(saved.h1);
  const Part parts[] = {{kQ, 0, q}, {kK, q, kv}, {kV, q + kv, kv}};
  const at::Tensor w = p.stacked_weight(kQ, 3);
  if (const auto grad = p.stacked_grad(kQ, 3); w.defined() && grad.tensor.defined()) {
    gemm::grad_weight(grad.tensor, dqkv, saved.h1, grad.accumulate);
    gemm::grad_input(dh, dqkv, w, false);
  } else {
    for (const auto& [parameter, first, size] : parts) {
      const at::Tensor part = dqkv.narrow(1, first, size);
      const auto one = p.grad(parameter);
      gemm::grad_weight(one.tensor, part, saved.h1, one.accumulate);
      gemm::grad_input(dh, part, p.weight(parameter), first > 0);
    }
  }
  if (config_.qkv_bias) {
    if (const auto grad = p.stacked_grad(kQBias, 3); grad.tensor.defined()) {
      gemm::grad_bias(grad.tensor, dqkv, grad.accumulate);
    } else {
      for (const auto& [parameter, first, size] : parts) {
        const auto one = p.grad(parameter + 3);
        gemm::grad_bias(one.tensor, dqkv.narrow(1, first, size), one.accumulate);
      }
    }
  }
  const auto grad = p.grad(kNorm1);
  ops::rms_norm_backward(dh, saved.x, p.weight(kNorm1), saved.rstd1, dy, grad.tensor,
                         grad.accumulate);
}

void DecoderLayer::backward(const zero::UnitParameters& p, at::Tensor dy,
                            const ops::RopeTable& rope, int64_t batch, LayerSaved saved) const {
  backward_mlp(p, dy, saved);
  backward_attention(p, dy, rope, batch, saved);
}

at::Tensor DecoderLayer::forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                        const ops::RopeTable& rope, int64_t batch, int64_t first,
                                        at::Tensor k_cache, at::Tensor v_cache) const {
  const bool bias = config_.qkv_bias;
  const int64_t fresh = x.size(0) / batch, heads = config_.num_heads, kv = config_.num_kv_heads;
  at::Tensor qkv = project_qkv(p, ops::rms_norm(x, p.weight(kNorm1), config_.rms_norm_eps).y);
  ops::rope(qkv, rope, heads + kv, false);
  const at::Tensor all = qkv.view({batch, fresh, heads + 2 * kv, config_.head_dim}).transpose(1, 2);
  k_cache.narrow(2, first, fresh).copy_(all.narrow(1, heads, kv));
  v_cache.narrow(2, first, fresh).copy_(all.narrow(1, heads + kv, kv));
  // A prompt comes whole (first 0, causal) or one token at a time (sees everything before it).
  const at::Tensor out =
      at::scaled_dot_product_attention(all.narrow(1, 0, heads), k_cache.narrow(2, 0, first + fresh),
                                       v_cache.narrow(2, 0, first + fresh), {}, 0.0,
                                       /*is_causal=*/fresh > 1, std::nullopt, /*enable_gqa=*/true);
  const at::Tensor x2 = gemm::linear_add(
      x, out.transpose(1, 2).reshape({x.size(0), config_.query_size()}), p.weight(index(kO, bias)));
  const at::Tensor h2 = ops::rms_norm(x2, p.weight(index(kNorm2, bias)), config_.rms_norm_eps).y;
  return gemm::linear_add(x2, ops::swiglu(project_gate_up(p, h2)), p.weight(index(kDown, bias)));
}

}  // namespace dsj::models
