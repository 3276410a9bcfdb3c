// Attention by the device's flash kernels, through their forward and backward operators: they keep
// the log-sum-exp and never the scores. With dropout on the probabilities a plain form runs, which
// keeps the scores whole, one sequence at a time: the CPU's flash kernels have no dropout.
#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/models/gemm.h"
#include "engine/models/unit.h"

namespace dsj::models::ops {
namespace {

struct Heads {
  at::Tensor q, k,
      v;  ///< [batch, heads, seq, D]; views, but shared k, v are copies
};

/// A key and value head serves heads / kv_heads query heads. The kernels want one per query head.
at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2).expand({x.size(0), x.size(1), times, x.size(2), x.size(3)}).flatten(1, 2);
}

at::Tensor by_head(const at::Tensor& qkv, const Attention& s) {
  return qkv.view({s.batch, s.seq, s.heads + 2 * s.kv_heads, s.dim}).transpose(1, 2);
}

Heads split(const at::Tensor& qkv, const Attention& s) {
  const at::Tensor all = by_head(qkv, s);
  const int64_t times = s.heads / s.kv_heads;
  return {all.narrow(1, 0, s.heads), repeat_heads(all.narrow(1, s.heads, s.kv_heads), times),
          repeat_heads(all.narrow(1, s.heads + s.kv_heads, s.kv_heads), times)};
}

at::Tensor merge(const at::Tensor& heads, int64_t rows) {
  return heads.transpose(1, 2).reshape({rows, heads.size(1) * heads.size(3)});
}

/// Turns the gradients of split()'s views into the gradient of qkv.
at::Tensor join(const at::Tensor& qkv, const Attention& s, const at::Tensor& dq,
                const at::Tensor& dk, const at::Tensor& dv) {
  at::Tensor dqkv = at::empty_like(qkv);
  const at::Tensor all = by_head(dqkv, s);
  const int64_t times = s.heads / s.kv_heads;
  auto fold = [&](const at::Tensor& x) {
    return times == 1 ? x : x.unflatten(1, {s.kv_heads, times}).sum(2);
  };
  all.narrow(1, 0, s.heads).copy_(dq);
  all.narrow(1, s.heads, s.kv_heads).copy_(fold(dk));
  all.narrow(1, s.heads + s.kv_heads, s.kv_heads).copy_(fold(dv));
  return dqkv;
}

/// On a CPU without 16-bit units the kernel's products run in fp32, like all others.
at::Tensor widen(const at::Tensor& x) {
  return gemm::native(x) ? x : x.to(at::kFloat);
}

at::Tensor heads_of(const at::Tensor& x, const Attention& s) {
  return x.view({s.batch, s.seq, s.heads, s.dim}).transpose(1, 2);
}

bool windowed(const Attention& s) {
  return s.window > 0 && s.window < s.seq;
}

/// [seq, seq] of type `options`: 0 where a query sees the key, -inf elsewhere.
at::Tensor causal_mask(const Attention& s, const at::TensorOptions& options) {
  at::Tensor seen = at::ones({s.seq, s.seq}, options.dtype(at::kBool)).tril_();
  if (windowed(s)) seen.triu_(1 - s.window);
  return at::zeros({s.seq, s.seq}, options).masked_fill_(seen.logical_not_(), -INFINITY);
}

/// What the flash kernels take. Without a window their own causal mask is enough.
device::AttentionInput flash_input(const at::Tensor& qkv, const Attention& s) {
  const Heads h = split(widen(qkv), s);
  device::AttentionInput in{h.q, h.k, h.v, std::nullopt, s.scale};
  if (windowed(s)) in.mask = device::of(h.q).mask(causal_mask(s, h.q.options()), s.batch, s.heads);
  return in;
}

// ---- the plain form

/// One sequence of a batch.
struct Sequence {
  Attention shape;  ///< batch 1, with its own dropout key
  int64_t first;    ///< its first row
};

std::vector<Sequence> sequences(const Attention& s) {
  std::vector<Sequence> all;
  for (int64_t b = 0; b < s.batch; ++b) {
    Attention one = s;
    one.batch = 1;
    one.dropout.key = dropout_key(s.dropout.key, b);
    all.push_back({one, b * s.seq});
  }
  return all;
}

/// softmax(scores) in fp32, [1, heads, seq, seq].
at::Tensor probabilities(const Heads& h, const Attention& s) {
  at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).mul_(s.scale);
  return scores.add_(causal_mask(s, scores.options())).softmax(-1);
}

Attended plain_attention(const at::Tensor& qkv, const Attention& shape) {
  at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const auto& [s, first] : sequences(shape)) {
    const Heads h = split(qkv.narrow(0, first, s.seq).to(at::kFloat), s);
    at::Tensor p = probabilities(h, s);
    dropout(p, s.dropout);
    out.narrow(0, first, s.seq).copy_(merge(at::matmul(p, h.v), s.seq));
  }
  return {out, {}, {}, {}};
}

at::Tensor plain_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                                    const Attention& shape) {
  at::Tensor dqkv = at::empty_like(qkv);
  for (const auto& [s, first] : sequences(shape)) {
    const at::Tensor rows = qkv.narrow(0, first, s.seq).to(at::kFloat);
    const Heads h = split(rows, s);
    const at::Tensor d = heads_of(dout.narrow(0, first, s.seq).to(at::kFloat), s);
    const at::Tensor p = probabilities(h, s);
    at::Tensor dropped = p.clone();
    dropout(dropped, s.dropout);
    const at::Tensor dv = at::matmul(dropped.transpose(2, 3), d);
    at::Tensor dp = at::matmul(d, h.v.transpose(2, 3));
    dropout(dp, s.dropout);
    const at::Tensor dscores = (dp - (dp * p).sum(-1, true)).mul_(p).mul_(s.scale);
    dqkv.narrow(0, first, s.seq)
        .copy_(
            join(rows, s, at::matmul(dscores, h.k), at::matmul(dscores.transpose(2, 3), h.q), dv));
  }
  return dqkv;
}

}  // namespace

Attended attention(const at::Tensor& qkv, const Attention& shape) {
  if (shape.dropout.p > 0) return plain_attention(qkv, shape);
  const auto flash = device::of(qkv).attention(flash_input(qkv, shape));
  return {merge(flash.out, qkv.size(0)).to(qkv.scalar_type()), flash.logsumexp, flash.philox_seed,
          flash.philox_offset};
}

at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const Attended& attended, const Attention& s) {
  if (s.dropout.p > 0) return plain_attention_backward(dout, qkv, s);
  const at::Tensor dheads = heads_of(widen(dout), s), out = heads_of(widen(attended.out), s);
  const auto [dq, dk, dv] = device::of(qkv).attention_backward(
      dheads, flash_input(qkv, s),
      {out, attended.logsumexp, attended.philox_seed, attended.philox_offset});
  return join(qkv, s, dq, dk, dv);
}

at::Tensor attention_cached(const at::Tensor& qkv, const Attention& shape, int64_t first,
                            at::Tensor k_cache, at::Tensor v_cache) {
  DSJ_CHECK(first == 0 || shape.seq == 1);
  const at::Tensor all = by_head(qkv, shape);
  k_cache.narrow(2, first, shape.seq).copy_(all.narrow(1, shape.heads, shape.kv_heads));
  v_cache.narrow(2, first, shape.seq)
      .copy_(all.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads));
  if (first == 0) return attention(qkv, shape).out;
  const int64_t seen = shape.window > 0 ? std::min(shape.window, first + 1) : first + 1;
  const int64_t from = first + 1 - seen;
  const at::Tensor out = at::scaled_dot_product_attention(
      all.narrow(1, 0, shape.heads), k_cache.narrow(2, from, seen), v_cache.narrow(2, from, seen),
      {}, 0.0, /*is_causal=*/false, shape.scale, /*enable_gqa=*/true);
  return merge(out, qkv.size(0));
}

}  // namespace dsj::models::ops
