// Attention by the device's flash kernels, through their forward and backward operators: they keep
// the log-sum-exp and never the scores. Where they take rows laid end to end a micro-batch is one
// call (engine/device/attention.h). Others take rectangles: each run of rows of one length is then
// a call of its own, and shared keys and values are copied to all heads. With dropout on the
// probabilities a plain form runs, which keeps the scores whole, one row at a time: the CPU's flash
// kernels have no dropout.
#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/models/gemm.h"
#include "engine/models/unit.h"

namespace dsj::models::ops {
namespace {

using Run = RowBounds::Run;

struct Heads {
  at::Tensor q, k, v;  ///< [rows, heads, length, D]; views, but shared k, v are copies
};

/// The tokens of a run.
at::Tensor of_run(const at::Tensor& x, const Run& run) {
  return x.narrow(0, run.start, run.tokens());
}

/// x [tokens of the run, heads * dim] → [rows, heads, length, dim], a view.
at::Tensor by_head(const at::Tensor& x, const Run& run, int64_t dim) {
  return x.view({run.rows, run.length, x.size(1) / dim, dim}).transpose(1, 2);
}

at::Tensor merge(const at::Tensor& heads, const Run& run) {
  return heads.transpose(1, 2).reshape({run.tokens(), heads.size(1) * heads.size(3)});
}

/// A key and value head serves heads / kv_heads query heads. The kernels want one per query head.
at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2).expand({x.size(0), x.size(1), times, x.size(2), x.size(3)}).flatten(1, 2);
}

Heads split(const at::Tensor& qkv, const Run& run, const Attention& s) {
  const at::Tensor all = by_head(qkv, run, s.dim);
  const int64_t times = s.heads / s.kv_heads;
  return {all.narrow(1, 0, s.heads), repeat_heads(all.narrow(1, s.heads, s.kv_heads), times),
          repeat_heads(all.narrow(1, s.heads + s.kv_heads, s.kv_heads), times)};
}

/// Turns the gradients of split()'s views into the gradient of qkv.
void join(const at::Tensor& dqkv, const Run& run, const Attention& s, const at::Tensor& dq,
          const at::Tensor& dk, const at::Tensor& dv) {
  const at::Tensor all = by_head(dqkv, run, s.dim);
  const int64_t times = s.heads / s.kv_heads;
  auto fold = [&](const at::Tensor& x) {
    return times == 1 ? x : x.unflatten(1, {s.kv_heads, times}).sum(2);
  };
  all.narrow(1, 0, s.heads).copy_(dq);
  all.narrow(1, s.heads, s.kv_heads).copy_(fold(dk));
  all.narrow(1, s.heads + s.kv_heads, s.kv_heads).copy_(fold(dv));
}

/// On a CPU without 16-bit units the kernel's products run in fp32, like all others.
at::Tensor widen(const at::Tensor& x) {
  return gemm::native(x) ? x : x.to(at::kFloat);
}

bool windowed(const Run& run, const Attention& s) {
  return s.window > 0 && s.window < run.length;
}

/// [length, length] of type `options`: 0 where a query sees the key, -inf elsewhere.
at::Tensor causal_mask(const Run& run, const Attention& s, const at::TensorOptions& options) {
  const int64_t length = run.length;
  at::Tensor seen = at::ones({length, length}, options.dtype(at::kBool)).tril_();
  if (windowed(run, s)) seen.triu_(1 - s.window);
  return at::zeros({length, length}, options).masked_fill_(seen.logical_not_(), -INFINITY);
}

/// What the flash kernels take, of the run's part of qkv. Without a window their own causal mask is
/// enough.
device::AttentionInput flash_input(const at::Tensor& qkv, const Run& run, const Attention& s) {
  const Heads h = split(widen(qkv), run, s);
  device::AttentionInput in{h.q, h.k, h.v, std::nullopt, s.scale};
  if (windowed(run, s))
    in.mask = device::of(h.q).mask(causal_mask(run, s, h.q.options()), run.rows, s.heads);
  return in;
}

/// Whether the device takes all rows at once.
bool by_rows(const at::Tensor& qkv, const Attention& s) {
  return device::of(qkv).attention_choice(qkv.scalar_type(), s.dim).by_rows;
}

device::RowAttention rows_input(const at::Tensor& qkv, const RowBounds& rows, const Attention& s) {
  return {qkv, s.heads, s.kv_heads, s.dim, rows.starts_there(), rows.longest(), s.scale, s.window};
}

// ---- the plain form

/// A row by itself, with its own dropout key.
struct OneRow {
  Run run;
  Attention shape;
};

std::vector<OneRow> one_by_one(const RowBounds& rows, const Attention& shape) {
  std::vector<OneRow> all;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    OneRow one{{.row = row, .start = rows.starts()[row], .length = rows.length(row)}, shape};
    one.shape.dropout.key = dropout_key(shape.dropout.key, row);
    all.push_back(one);
  }
  return all;
}

/// softmax(scores) in fp32, [1, heads, length, length].
at::Tensor probabilities(const Heads& h, const Run& run, const Attention& s) {
  at::Tensor scores = at::matmul(h.q, h.k.transpose(2, 3)).mul_(s.scale);
  return scores.add_(causal_mask(run, s, scores.options())).softmax(-1);
}

Attended plain_attention(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape) {
  at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const auto& [run, s] : one_by_one(rows, shape)) {
    const Heads h = split(of_run(qkv, run).to(at::kFloat), run, s);
    at::Tensor p = probabilities(h, run, s);
    dropout(p, s.dropout);
    of_run(out, run).copy_(merge(at::matmul(p, h.v), run));
  }
  return {out, {}};
}

at::Tensor plain_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                                    const RowBounds& rows, const Attention& shape) {
  at::Tensor dqkv = at::empty_like(qkv);
  for (const auto& [run, s] : one_by_one(rows, shape)) {
    const Heads h = split(of_run(qkv, run).to(at::kFloat), run, s);
    const at::Tensor d = by_head(of_run(dout, run).to(at::kFloat), run, s.dim);
    const at::Tensor p = probabilities(h, run, s);
    at::Tensor dropped = p.clone();
    dropout(dropped, s.dropout);
    const at::Tensor dv = at::matmul(dropped.transpose(2, 3), d);
    at::Tensor dp = at::matmul(d, h.v.transpose(2, 3));
    dropout(dp, s.dropout);
    const at::Tensor dscores = (dp - (dp * p).sum(-1, true)).mul_(p).mul_(s.scale);
    join(of_run(dqkv, run), run, s, at::matmul(dscores, h.k),
         at::matmul(dscores.transpose(2, 3), h.q), dv);
  }
  return dqkv;
}

}  // namespace

Attended attention(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape) {
  DSJ_CHECK(rows.tokens() == qkv.size(0));
  if (shape.dropout.p > 0) return plain_attention(qkv, rows, shape);
  if (by_rows(qkv, shape)) {
    const auto flash = device::attention_by_rows(rows_input(qkv, rows, shape));
    return {flash.out, {{flash.logsumexp, flash.generator_state, flash.unused}}};
  }
  Attended attended;
  const auto& runs = rows.runs();
  if (runs.size() > 1)
    attended.out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const Run& run : runs) {
    const auto flash = device::of(qkv).attention(flash_input(of_run(qkv, run), run, shape));
    const at::Tensor out = merge(flash.out, run);
    if (runs.size() > 1) {
      of_run(attended.out, run).copy_(out);
    } else {
      attended.out = out.to(qkv.scalar_type());
    }
    attended.sums.push_back({flash.logsumexp, flash.philox_seed, flash.philox_offset});
  }
  return attended;
}

at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const Attended& attended, const RowBounds& rows,
                              const Attention& shape) {
  if (shape.dropout.p > 0) return plain_attention_backward(dout, qkv, rows, shape);
  if (by_rows(qkv, shape)) {
    const auto& sums = attended.sums[0];
    return device::attention_by_rows_backward(
        dout, rows_input(qkv, rows, shape),
        {attended.out, sums.logsumexp, sums.philox_seed, sums.philox_offset});
  }
  at::Tensor dqkv = at::empty_like(qkv);
  for (size_t i = 0; i < rows.runs().size(); ++i) {
    const Run& run = rows.runs()[i];
    const auto& sums = attended.sums[i];
    const at::Tensor dheads = by_head(widen(of_run(dout, run)), run, shape.dim);
    const at::Tensor out = by_head(widen(of_run(attended.out, run)), run, shape.dim);
    const auto [dq, dk, dv] = device::of(qkv).attention_backward(
        dheads, flash_input(of_run(qkv, run), run, shape),
        {out, sums.logsumexp, sums.philox_seed, sums.philox_offset});
    join(of_run(dqkv, run), run, shape, dq, dk, dv);
  }
  return dqkv;
}

at::Tensor attention_cached(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape,
                            at::Tensor k_cache, at::Tensor v_cache) {
  const bool whole = rows.runs()[0].first == 0;
  at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const Run& run : rows.runs()) {
    DSJ_CHECK(whole ? run.first == 0 : run.first > 0 && run.length == 1);
    const at::Tensor all = by_head(of_run(qkv, run), run, shape.dim);
    const auto cached = [&](const at::Tensor& cache, int64_t from, int64_t length) {
      return cache.narrow(0, run.row, run.rows).narrow(2, from, length);
    };
    cached(k_cache, run.first, run.length).copy_(all.narrow(1, shape.heads, shape.kv_heads));
    cached(v_cache, run.first, run.length)
        .copy_(all.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads));
    if (whole) continue;
    const int64_t seen = shape.window > 0 ? std::min(shape.window, run.first + 1) : run.first + 1;
    const int64_t from = run.first + 1 - seen;
    of_run(out, run).copy_(merge(
        at::scaled_dot_product_attention(all.narrow(1, 0, shape.heads), cached(k_cache, from, seen),
                                         cached(v_cache, from, seen), {}, 0.0, /*is_causal=*/false,
                                         shape.scale, /*enable_gqa=*/true),
        run));
  }
  return whole ? attention(qkv, rows, shape).out : out;
}

}  // namespace dsj::models::ops
