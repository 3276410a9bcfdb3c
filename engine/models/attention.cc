// Attention by libtorch's flash kernels, through their forward and backward operators: the
// log-sum-exp is kept, the scores never are.
#include <ATen/ATen.h>

#include "engine/models/gemm.h"
#include "engine/models/ops.h"

namespace dsj::models::ops {
namespace {

struct Heads {
  at::Tensor q, k,
      v;  ///< [batch, heads, seq, D], strided views (k, v copied when heads share them)
};

/// Each key and value head serves heads / kv_heads query heads; the kernels want one each.
at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2).expand({x.size(0), x.size(1), times, x.size(2), x.size(3)}).flatten(1, 2);
}

Heads split(const at::Tensor& qkv, const Attention& s) {
  const at::Tensor all =
      qkv.view({s.batch, s.seq, s.heads + 2 * s.kv_heads, s.dim}).transpose(1, 2);
  const int64_t times = s.heads / s.kv_heads;
  return {all.narrow(1, 0, s.heads), repeat_heads(all.narrow(1, s.heads, s.kv_heads), times),
          repeat_heads(all.narrow(1, s.heads + s.kv_heads, s.kv_heads), times)};
}

at::Tensor merge(const at::Tensor& heads, int64_t rows) {
  return heads.transpose(1, 2).reshape({rows, heads.size(1) * heads.size(3)});
}

/// On a CPU without 16-bit units the kernel's products run in fp32, like every other one.
at::Tensor widen(const at::Tensor& x) {
  return gemm::native(x) ? x : x.to(at::kFloat);
}

}  // namespace

Attended attention(const at::Tensor& qkv, const Attention& shape) {
  const Heads h = split(widen(qkv), shape);
  if (!qkv.is_cpu()) {
    auto [out, logsumexp, seed, offset] = at::_scaled_dot_product_efficient_attention(
        h.q, h.k, h.v, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true);
    return {merge(out, qkv.size(0)), logsumexp, seed, offset};
  }
  auto [out, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(h.q, h.k, h.v, 0.0, /*is_causal=*/true);
  return {merge(out, qkv.size(0)).to(qkv.scalar_type()), logsumexp, {}, {}};
}

at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const Attended& attended, const Attention& s) {
  const Heads h = split(widen(qkv), s);
  auto heads_of = [&](const at::Tensor& x) {
    return widen(x).view({s.batch, s.seq, s.heads, s.dim}).transpose(1, 2);
  };
  at::Tensor dq, dk, dv;
  if (qkv.is_cpu()) {
    std::tie(dq, dk, dv) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_of(dout), h.q, h.k, h.v, heads_of(attended.out), attended.logsumexp, 0.0,
        /*is_causal=*/true);
  } else {
    std::tie(dq, dk, dv, std::ignore) = at::_scaled_dot_product_efficient_attention_backward(
        heads_of(dout), h.q, h.k, h.v, /*attn_bias=*/{}, heads_of(attended.out), attended.logsumexp,
        attended.philox_seed, attended.philox_offset, 0.0, {true, true, true, false},
        /*is_causal=*/true);
  }
  at::Tensor dqkv = at::empty_like(qkv);
  const at::Tensor all =
      dqkv.view({s.batch, s.seq, s.heads + 2 * s.kv_heads, s.dim}).transpose(1, 2);
  const int64_t times = s.heads / s.kv_heads;
  auto fold = [&](const at::Tensor& x) {
    return times == 1 ? x : x.unflatten(1, {s.kv_heads, times}).sum(2);
  };
  all.narrow(1, 0, s.heads).copy_(dq);
  all.narrow(1, s.heads, s.kv_heads).copy_(fold(dk));
  all.narrow(1, s.heads + s.kv_heads, s.kv_heads).copy_(fold(dv));
  return dqkv;
}

}  // namespace dsj::models::ops
