// Attention by the device's flash kernels, by their forward and backward operators, which keep the
// log-sum-exp and never the scores. If the kernels take concatenated rows, a micro-batch is one
// call (engine/device/attention.h). Otherwise they take rectangles: each run of rows of equal
// length is one call, and shared keys and values are copied to all heads. With dropout on the
// probabilities or a cap on the scores a plain form runs, because flash kernels have no cap, and
// the CPU's no dropout. It materialises the scores of a block of one row's queries, whose size
// job/layout/row_pieces.h decides.
#include <ATen/ATen.h>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/models/ops/gemm.h"
#include "engine/models/unit/unit.h"
#include "job/layout/row_pieces.h"

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

/// A key and value head serves heads / kv_heads query heads. The kernels need one per query head.
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

/// Without 16-bit units of the CPU the kernel's products run in fp32, as all others.
at::Tensor widen(const at::Tensor& x) {
  return gemm::native(x) ? x : x.to(at::kFloat);
}

bool windowed(const Run& run, const Attention& s) {
  return s.window > 0 && s.window < run.length;
}

/// A block: queries [first, first + count) of each row of a run, and the keys that they see, from
/// `from` to the last query.
struct Block {
  int64_t first = 0, count = 0, from = 0;
  int64_t keys() const { return first + count - from; }
  at::Tensor queries_of(const at::Tensor& heads) const { return heads.narrow(2, first, count); }
  at::Tensor keys_of(const at::Tensor& heads) const { return heads.narrow(2, from, keys()); }
};

/// `matrices`: the number of score matrices that are in memory together.
std::vector<Block> blocks_of(const Run& run, const Attention& s, int64_t matrices) {
  const int64_t seen = windowed(run, s) ? s.window : run.length;
  const int64_t most = s.queries > 0 ? s.queries : layout::query_block(run.length, seen, matrices);
  std::vector<Block> blocks;
  for (const auto& [first, count] : layout::row_pieces(run.length, most))
    blocks.push_back({first, count, std::max<int64_t>(0, first - seen + 1)});
  return blocks;
}
/// Only a window needs a mask, and so blocks. Otherwise the kernels take whole rows.
std::vector<Block> flash_blocks(const Run& run, const Attention& s) {
  if (!windowed(run, s)) return {{.count = run.length}};
  return blocks_of(run, s, 1);
}

/// [queries, keys] of type `options`: 0 where a query sees the key, -inf elsewhere.
at::Tensor causal_mask(const Block& block, const Run& run, const Attention& s,
                       const at::TensorOptions& options) {
  const int64_t shift = block.first - block.from;
  at::Tensor seen = at::ones({block.count, block.keys()}, options.dtype(at::kBool)).tril_(shift);
  if (windowed(run, s)) seen.triu_(shift + 1 - s.window);
  return at::zeros(seen.sizes(), options).masked_fill_(seen.logical_not_(), -INFINITY);
}

/// The flash kernels' input for a block. Without a window their own causal mask suffices.
device::AttentionInput flash_input(const Heads& h, const Block& block, const Run& run,
                                   const Attention& s) {
  device::AttentionInput in{block.queries_of(h.q), block.keys_of(h.k), block.keys_of(h.v),
                            std::nullopt, s.scale};
  if (windowed(run, s))
    in.mask = device::of(h.q).mask(causal_mask(block, run, s, h.q.options()), run.rows, s.heads);
  return in;
}

/// Gradients of the heads from split(). Several blocks add to a key's gradient, so the sum is fp32.
struct HeadSums {
  at::Tensor q, k, v;
  explicit HeadSums(const Heads& h)
      : q(at::empty(h.q.sizes(), h.q.options())),
        k(at::zeros(h.k.sizes(), h.k.options().dtype(at::kFloat))),
        v(at::zeros(h.v.sizes(), h.v.options().dtype(at::kFloat))) {}
  void add(const Block& block, const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
    block.queries_of(q).copy_(dq);
    block.keys_of(k).add_(dk);
    block.keys_of(v).add_(dv);
  }
};

/// Whether the device's kernel takes concatenated rows.
bool by_rows(const at::Tensor& qkv, const Attention& s) {
  return device::of(qkv).attention_choice(qkv.scalar_type(), s.dim).by_rows;
}

device::RowAttention rows_input(const at::Tensor& qkv, const RowBounds& rows, const Attention& s) {
  return {qkv, s.heads, s.kv_heads, s.dim, rows.starts_there(), rows.longest(), s.scale, s.window};
}

// ---- sinks

/// The sums of the queries of `heads` [..., queries, D]: a kernel may pad the last dimension.
at::Tensor of_queries(const at::Tensor& logsumexp, const at::Tensor& heads) {
  return logsumexp.narrow(-1, 0, heads.size(-2));
}

/// A sink is a key with this score and no value. The kernels have no sinks, so this corrects their
/// sums and results. With corrected inputs, their backward is right for queries, keys and values.
/// logsumexp and `out` [..., D] have the heads in dimension `head`.
void add_sinks(const at::Tensor& sinks, int64_t head, at::Tensor& logsumexp, at::Tensor& out) {
  std::vector<int64_t> shape(static_cast<size_t>(logsumexp.dim()), 1);
  shape[static_cast<size_t>(head)] = sinks.size(0);
  const at::Tensor all = at::logaddexp(logsumexp, sinks.view(shape));
  const at::Tensor share = of_queries(logsumexp, out) - of_queries(all, out);
  out = (out * share.exp().unsqueeze(-1)).to(out.scalar_type());
  logsumexp = all;
}

/// The same for one call of a run: logsumexp [rows, heads, queries], out [rows, heads, queries, D].
void add_sinks(const Attention& s, at::Tensor& logsumexp, at::Tensor& out) {
  if (s.sinks.defined()) add_sinks(s.sinks, 1, logsumexp, out);
}

/// dsinks += gradient. dout, out [rows, heads, queries, D]; out and logsumexp are corrected.
void sinks_backward(const Attention& s, const at::Tensor& dout, const at::Tensor& out,
                    const at::Tensor& logsumexp) {
  if (!s.dsinks.defined()) return;
  const at::Tensor lost = (s.sinks.view({1, -1, 1}) - of_queries(logsumexp, out)).exp_();
  const at::Tensor sums = (dout.to(at::kFloat) * out.to(at::kFloat)).sum(-1);
  s.dsinks.sub_((lost * sums).sum(at::IntArrayRef{0, 2}));
}

/// For a device that takes concatenated rows: logsumexp [heads, N], out [N, heads D].
void add_sinks_by_rows(const Attention& s, at::Tensor& logsumexp, at::Tensor& out) {
  if (!s.sinks.defined()) return;
  at::Tensor heads = out.view({-1, s.heads, s.dim}).transpose(0, 1);
  add_sinks(s.sinks, 0, logsumexp, heads);
  out = heads.transpose(0, 1).reshape(out.sizes());
}

// ---- the plain form

/// One row with its own dropout key.
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

/// Scaled scores in fp32, [1, heads, queries, keys]; with a cap, their tanh.
at::Tensor scores_of(const Heads& h, const Block& block, const Attention& s) {
  at::Tensor scores =
      at::matmul(block.queries_of(h.q), block.keys_of(h.k).transpose(2, 3)).mul_(s.scale);
  return s.cap > 0 ? scores.div_(s.cap).tanh_() : scores;
}

/// The softmax of scores_of()'s result, which it overwrites.
at::Tensor probabilities(at::Tensor scores, const Block& block, const Run& run,
                         const Attention& s) {
  if (s.cap > 0) scores.mul_(s.cap);
  scores.add_(causal_mask(block, run, s, scores.options()));
  if (!s.sinks.defined()) return scores.softmax(-1);
  const int64_t keys = scores.size(-1);
  const at::Tensor sinks =
      s.sinks.view({1, -1, 1, 1}).expand({scores.size(0), s.heads, scores.size(2), 1});
  return at::cat({scores, sinks}, -1).softmax(-1).narrow(-1, 0, keys);
}

/// The dropout of a block, with its own key; the first block of a row has the row's key.
Dropout dropout_of(const Block& block, const Attention& s) {
  if (block.first == 0) return s.dropout;
  return {s.dropout.p, dropout_key(s.dropout.key, block.first)};
}

Attended plain_attention(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape) {
  at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const auto& [run, s] : one_by_one(rows, shape)) {
    const Heads h = split(of_run(qkv, run).to(at::kFloat), run, s);
    const at::Tensor heads = by_head(of_run(out, run), run, s.dim);
    for (const Block& block : blocks_of(run, s, s.heads)) {
      at::Tensor p = probabilities(scores_of(h, block, s), block, run, s);
      dropout(p, dropout_of(block, s));
      block.queries_of(heads).copy_(at::matmul(p, block.keys_of(h.v)));
    }
  }
  return {out, {}};
}

at::Tensor plain_attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                                    const RowBounds& rows, const Attention& shape) {
  for (const auto& [run, s] : one_by_one(rows, shape)) {
    const Heads h = split(of_run(qkv, run).to(at::kFloat), run, s);
    const at::Tensor dheads = by_head(of_run(dout, run).to(at::kFloat), run, s.dim);
    HeadSums sums(h);
    for (const Block& block : blocks_of(run, s, s.heads)) {
      const at::Tensor d = block.queries_of(dheads);
      at::Tensor scores = scores_of(h, block, s);
      at::Tensor slope;  // of the cap
      if (s.cap > 0) slope = 1 - scores.square();
      const at::Tensor p = probabilities(std::move(scores), block, run, s);
      at::Tensor dropped = p.clone();
      dropout(dropped, dropout_of(block, s));
      const at::Tensor dv = at::matmul(dropped.transpose(2, 3), d);
      dropped.reset();
      at::Tensor dp = at::matmul(d, block.keys_of(h.v).transpose(2, 3));
      dropout(dp, dropout_of(block, s));
      const at::Tensor mean = (dp * p).sum(-1, true);
      if (s.dsinks.defined())
        s.dsinks.sub_(((1 - p.sum(-1, true)) * mean).sum(at::IntArrayRef{0, 2, 3}));
      const at::Tensor dscores = (dp - mean).mul_(p).mul_(s.scale);
      if (slope.defined()) dscores.mul_(slope);
      sums.add(block, at::matmul(dscores, block.keys_of(h.k)),
               at::matmul(dscores.transpose(2, 3), block.queries_of(h.q)), dv);
    }
    join(of_run(qkv, run), run, s, sums.q, sums.k, sums.v);
  }
  return qkv;
}

// ---- the flash kernels, run by run

/// One run's output [tokens, heads * D], in qkv's type or wider. Appends the sums of its calls.
at::Tensor flash_run(const at::Tensor& qkv, const Run& run, const Attention& s,
                     std::vector<Attended::Sums>& sums) {
  const Heads h = split(widen(qkv), run, s);
  const auto blocks = flash_blocks(run, s);
  at::Tensor out;
  if (blocks.size() > 1) out = at::empty({run.tokens(), s.heads * s.dim}, qkv.options());
  for (const Block& block : blocks) {
    auto flash = device::of(qkv).attention(flash_input(h, block, run, s));
    add_sinks(s, flash.logsumexp, flash.out);
    sums.push_back({flash.logsumexp, flash.philox_seed, flash.philox_offset});
    if (blocks.size() == 1) return merge(flash.out, run);
    block.queries_of(by_head(out, run, s.dim)).copy_(flash.out);
  }
  return out;
}

/// Writes the gradient of the run's part of qkv into it. `sums`: points to the run's calls;
/// advanced to the next run's.
void flash_run_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                        const Run& run, const Attention& s,
                        std::vector<Attended::Sums>::const_iterator& sums) {
  const Heads h = split(widen(qkv), run, s);
  const at::Tensor dheads = by_head(widen(dout), run, s.dim);
  const at::Tensor heads = by_head(widen(out), run, s.dim);
  const auto backward = [&](const Block& block) {
    const auto& of = *sums++;
    sinks_backward(s, block.queries_of(dheads), block.queries_of(heads), of.logsumexp);
    return device::of(qkv).attention_backward(
        block.queries_of(dheads), flash_input(h, block, run, s),
        {block.queries_of(heads), of.logsumexp, of.philox_seed, of.philox_offset});
  };
  const auto blocks = flash_blocks(run, s);
  if (blocks.size() == 1) {
    const auto [dq, dk, dv] = backward(blocks[0]);
    return join(qkv, run, s, dq, dk, dv);
  }
  HeadSums all(h);
  for (const Block& block : blocks) {
    const auto [dq, dk, dv] = backward(block);
    all.add(block, dq, dk, dv);
  }
  join(qkv, run, s, all.q, all.k, all.v);
}

}  // namespace

Attended attention(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape) {
  DSJ_CHECK(rows.tokens() == qkv.size(0));
  if (shape.plain()) return plain_attention(qkv, rows, shape);
  if (by_rows(qkv, shape)) {
    auto flash = device::attention_by_rows(rows_input(qkv, rows, shape));
    add_sinks_by_rows(shape, flash.logsumexp, flash.out);
    return {flash.out, {{flash.logsumexp, flash.generator_state, flash.unused}}};
  }
  Attended attended;
  const auto& runs = rows.runs();
  if (runs.size() > 1)
    attended.out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const Run& run : runs) {
    const at::Tensor out = flash_run(of_run(qkv, run), run, shape, attended.sums);
    if (runs.size() > 1) {
      of_run(attended.out, run).copy_(out);
    } else {
      attended.out = out.to(qkv.scalar_type());
    }
  }
  return attended;
}

at::Tensor attention_backward(const at::Tensor& dout, at::Tensor qkv, const Attended& attended,
                              const RowBounds& rows, const Attention& shape) {
  if (shape.plain()) return plain_attention_backward(dout, qkv, rows, shape);
  if (by_rows(qkv, shape)) {
    const auto& sums = attended.sums[0];
    if (shape.dsinks.defined()) {
      const auto heads = [&](const at::Tensor& x) {
        return x.view({1, -1, shape.heads, shape.dim}).transpose(1, 2);
      };
      sinks_backward(shape, heads(dout), heads(attended.out), sums.logsumexp.unsqueeze(0));
    }
    return device::attention_by_rows_backward(
        dout, rows_input(qkv, rows, shape),
        {attended.out, sums.logsumexp, sums.philox_seed, sums.philox_offset});
  }
  auto sums = attended.sums.begin();
  for (const Run& run : rows.runs())
    flash_run_backward(of_run(dout, run), of_run(qkv, run), of_run(attended.out, run), run, shape,
                       sums);
  return qkv;
}

namespace {

/// Mask [length, keys] bool: the keys from position `from` on that `run`'s tokens see; undefined:
/// all.
at::Tensor seen_by(const Run& run, int64_t from, int64_t window, at::Device place) {
  if (run.length == 1) return {};
  const auto there = at::TensorOptions(place).dtype(at::kLong);
  const at::Tensor asks = at::arange(run.first, run.first + run.length, there).unsqueeze(1);
  const at::Tensor keys = at::arange(from, run.first + run.length, there).unsqueeze(0);
  const at::Tensor seen = keys.le(asks);
  return window > 0 ? seen.logical_and(keys.gt(asks - window)) : seen;
}

}  // namespace

at::Tensor attention_cached(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape,
                            at::Tensor k_cache, at::Tensor v_cache) {
  const bool whole = rows.runs()[0].first == 0;
  at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.dim}, qkv.options());
  for (const Run& run : rows.runs()) {
    DSJ_CHECK((run.first == 0) == whole);
    const at::Tensor all = by_head(of_run(qkv, run), run, shape.dim);
    const auto cached = [&](const at::Tensor& cache, int64_t from, int64_t length) {
      return cache.narrow(0, run.row, run.rows).narrow(2, from, length);
    };
    cached(k_cache, run.first, run.length).copy_(all.narrow(1, shape.heads, shape.kv_heads));
    cached(v_cache, run.first, run.length)
        .copy_(all.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads));
    if (whole) continue;
    const int64_t from = shape.window > 0 ? std::max<int64_t>(0, run.first + 1 - shape.window) : 0;
    const int64_t count = run.first + run.length - from;
    const at::Tensor seen = seen_by(run, from, shape.window, qkv.device());
    if (shape.cap > 0 || shape.sinks.defined()) {
      const int64_t times = shape.heads / shape.kv_heads;
      const at::Tensor keys = repeat_heads(cached(k_cache, from, count), times);
      at::Tensor scores = at::matmul(all.narrow(1, 0, shape.heads), keys.transpose(2, 3))
                              .to(at::kFloat)
                              .mul_(shape.scale);
      if (shape.cap > 0) scores.div_(shape.cap).tanh_().mul_(shape.cap);
      if (seen.defined())
        scores.masked_fill_(seen.logical_not(), -std::numeric_limits<float>::infinity());
      if (shape.sinks.defined())
        scores = at::cat(
            {scores,
             shape.sinks.view({1, -1, 1, 1}).expand({run.rows, shape.heads, run.length, 1})},
            -1);
      const at::Tensor p = scores.softmax(-1).narrow(-1, 0, count);
      const at::Tensor values = repeat_heads(cached(v_cache, from, count), times);
      of_run(out, run).copy_(merge(at::matmul(p.to(values.scalar_type()), values), run));
      continue;
    }
    of_run(out, run).copy_(
        merge(at::scaled_dot_product_attention(
                  all.narrow(1, 0, shape.heads), cached(k_cache, from, count),
                  cached(v_cache, from, count),
                  seen.defined() ? std::optional<at::Tensor>(seen) : std::nullopt, 0.0,
                  /*is_causal=*/false, shape.scale, /*enable_gqa=*/true),
              run));
  }
  return whole ? attention(qkv, rows, shape).out : out;
}

}  // namespace dsj::models::ops
