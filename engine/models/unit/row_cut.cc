#include "engine/models/unit/row_cut.h"

#include <ATen/ATen.h>

#include <numeric>
#include <utility>

#include "common/check.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {
namespace {

/// How a model's heads are distributed over ranks.
struct Dealt {
  Dealt(const ops::Attention& shape, int ranks)
      : ranks(ranks),
        heads(shape.heads / ranks),
        copies(std::lcm(shape.kv_heads, int64_t{ranks}) / shape.kv_heads),
        kv_heads(shape.kv_heads * copies / ranks),
        dim(shape.dim),
        all_heads(shape.heads),
        all_kv_heads(shape.kv_heads) {
    DSJ_CHECK(shape.heads % ranks == 0);
  }
  const int64_t ranks;
  const int64_t heads;     ///< query heads per rank
  const int64_t copies;    ///< copies of each key head
  const int64_t kv_heads;  ///< key heads per rank, including copies
  const int64_t dim, all_heads, all_kv_heads;
  int64_t width() const { return (heads + 2 * kv_heads) * dim; }
};

/// Sends slice s of `sent` to rank s. Slice s of the result is what rank s sent here.
at::Tensor exchanged(const RowCut& cut, const at::Tensor& sent) {
  at::Tensor received = at::empty(sent.sizes(), sent.options());
  cut.ranks->all_to_all(received.view({-1}), sent.view({-1}), {comm::Traffic::Heads, "attention"})
      ->wait();
  return received;
}

/// [N, heads D] → [W, N, heads / W, D], a view.
at::Tensor by_rank(const at::Tensor& x, const Dealt& d) {
  return x.view({x.size(0), d.ranks, d.heads, d.dim}).transpose(0, 1);
}

/// The columns of heads [first, first + count) of tokens x.
at::Tensor columns(const at::Tensor& x, const Dealt& d, int64_t first, int64_t count) {
  return x.narrow(1, first * d.dim, count * d.dim);
}

/// Key or value heads of all tokens, copied for the ranks that need them: [N, W kv_heads, D].
at::Tensor copied(const at::Tensor& keys, const Dealt& d) {
  return keys.unflatten(1, {d.all_kv_heads, 1, d.dim})
      .expand({keys.size(0), d.all_kv_heads, d.copies, d.dim})
      .flatten(1, 2);
}

/// Tokens of all heads [N, (heads + 2 kv_heads) D] → all tokens of this rank's heads.
at::Tensor heads_of(const at::Tensor& qkv, const RowCut& cut, const Dealt& d) {
  const int64_t tokens = qkv.size(0);
  at::Tensor sent = at::empty({d.ranks, tokens, d.heads + 2 * d.kv_heads, d.dim}, qkv.options());
  sent.narrow(2, 0, d.heads)
      .copy_(
          columns(qkv, d, 0, d.all_heads).unflatten(1, {d.ranks, d.heads, d.dim}).transpose(0, 1));
  for (int64_t part = 0; part < 2; ++part)  // keys, values
    sent.narrow(2, d.heads + part * d.kv_heads, d.kv_heads)
        .copy_(copied(columns(qkv, d, d.all_heads + part * d.all_kv_heads, d.all_kv_heads), d)
                   .unflatten(1, {d.ranks, d.kv_heads})
                   .transpose(0, 1));
  return exchanged(cut, sent).view({d.ranks * tokens, d.width()});
}

/// The gradient of heads_of()'s result → that of its argument.
at::Tensor heads_back(const at::Tensor& dheads, const RowCut& cut, const Dealt& d) {
  const int64_t tokens = dheads.size(0) / d.ranks;
  const at::Tensor received =
      exchanged(cut, dheads.contiguous()).view({d.ranks, tokens, d.heads + 2 * d.kv_heads, d.dim});
  at::Tensor dqkv =
      at::empty({tokens, (d.all_heads + 2 * d.all_kv_heads) * d.dim}, dheads.options());
  columns(dqkv, d, 0, d.all_heads)
      .unflatten(1, {d.ranks, d.heads, d.dim})
      .copy_(received.narrow(2, 0, d.heads).transpose(0, 1));
  for (int64_t part = 0; part < 2; ++part) {
    const at::Tensor own =
        received.narrow(2, d.heads + part * d.kv_heads, d.kv_heads).transpose(0, 1);
    const at::Tensor to = columns(dqkv, d, d.all_heads + part * d.all_kv_heads, d.all_kv_heads)
                              .unflatten(1, {d.all_kv_heads, d.dim});
    if (d.copies == 1)
      to.unflatten(1, {d.ranks, d.kv_heads}).copy_(own);
    else
      to.copy_(own.reshape({tokens, d.all_kv_heads, d.copies, d.dim}).sum(2));
  }
  return dqkv;
}

/// This rank's share of a layer's attention.
ops::Attention own_shape(const ops::Attention& shape, const RowCut& cut, const Dealt& d) {
  ops::Attention own = shape;
  own.heads = d.heads;
  own.kv_heads = d.kv_heads;
  const auto narrow = [&](const at::Tensor& of_heads) {
    return of_heads.defined() ? of_heads.narrow(0, cut.ranks->rank() * d.heads, d.heads) : of_heads;
  };
  own.sinks = narrow(shape.sinks);
  own.dsinks = narrow(shape.dsinks);
  return own;
}

}  // namespace

ops::Attended attention(at::Tensor& qkv, const LayerCall& call, const ops::Attention& shape) {
  if (!call.cut) return ops::attention(qkv, *call.rows, shape);
  const RowCut& cut = *call.cut;
  const Dealt d(shape, cut.ranks->world());
  const int64_t tokens = qkv.size(0);
  qkv = heads_of(qkv, cut, d);
  ops::Attended attended = ops::attention(qkv, *cut.rows, own_shape(shape, cut, d));
  attended.of_heads = attended.out.contiguous();
  const at::Tensor received =
      exchanged(cut, attended.of_heads).view({d.ranks, tokens, d.heads, d.dim});
  attended.out = received.transpose(0, 1).reshape({tokens, d.all_heads * d.dim});
  return attended;
}

at::Tensor attention_backward(const at::Tensor& dout, at::Tensor qkv, ops::Attended attended,
                              const LayerCall& call, const ops::Attention& shape) {
  if (!call.cut) return ops::attention_backward(dout, std::move(qkv), attended, *call.rows, shape);
  const RowCut& cut = *call.cut;
  const Dealt d(shape, cut.ranks->world());
  const at::Tensor dheads =
      exchanged(cut, by_rank(dout.contiguous(), d).contiguous()).view({-1, d.heads * d.dim});
  attended.out = std::exchange(attended.of_heads, {});
  return heads_back(ops::attention_backward(dheads, std::move(qkv), attended, *cut.rows,
                                            own_shape(shape, cut, d)),
                    cut, d);
}

}  // namespace dsj::models
