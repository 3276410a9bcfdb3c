#include "engine/models/mixers/mamba.h"

#include <ATen/ATen.h>

#include "engine/models/ops/delta_parts.h"
#include "engine/models/ops/delta_rule.h"

namespace dsj::models {

/// The rule's input, and the intermediate results that backward needs.
struct MambaMixer::Scan {
  Convolved conv;
  at::Tensor x;         ///< [C, H, T, D] fp32: the values before their step
  at::Tensor softened;  ///< [n, H] fp32: the input of softplus
  at::Tensor steps;     ///< [C, H, T] fp32; 0 for padding tokens
  ops::DeltaChunks chunks;
};

namespace {

/// SiLU of the gate times y, normed over groups of columns. All [n, columns] fp32.
struct GroupNorm {
  at::Tensor active;        ///< SiLU of the gate
  at::Tensor rstd, normed;  ///< [n, groups, 1]; [n, columns]
  GroupNorm(const at::Tensor& y, const at::Tensor& gate, int64_t groups, double eps) {
    active = at::silu(gate);
    const at::Tensor product = (y * active).unflatten(1, {groups, y.size(1) / groups});
    rstd = product.square().mean(-1, true).add_(eps).rsqrt_();
    normed = (product * rstd).flatten(1);
  }
  /// The gradient of the product from that of `normed`.
  at::Tensor backward(const at::Tensor& dnormed) const {
    const int64_t groups = rstd.size(1);
    const at::Tensor y = normed.unflatten(1, {groups, -1}), d = dnormed.unflatten(1, {groups, -1});
    return ((d - y * (d * y).mean(-1, true)) * rstd).flatten(1);
  }
};

}  // namespace

MambaMixer::Scan MambaMixer::scan(const at::Tensor& products, const at::Tensor& conv,
                                  const Piece& piece, const Weights& weights) const {
  Scan s;
  s.conv = convolved(conv, piece, weights);
  const at::Tensor active = at::silu(s.conv.mixed);
  const auto heads = [&](int64_t first, int64_t size, int64_t count) {
    return rule::wide(rule::to_heads(active.narrow(1, first, size), piece.chunks, count))
        .contiguous();
  };
  const int64_t key = config_.key_size(), value = config_.value_size();
  const int64_t times = config_.value_heads / config_.key_heads;
  s.x = heads(0, value, config_.value_heads);
  s.chunks.k = rule::repeat_heads(heads(value, key, config_.key_heads), times);
  s.chunks.q = rule::repeat_heads(heads(value + key, key, config_.key_heads), times);

  // Softplus runs in the products' type.
  const at::Tensor raw = rule::Columns(products, config_).decays.index_select(0, piece.tokens);
  const at::Tensor shifted = raw + weights.shifts.to(raw.scalar_type());
  s.softened = rule::wide(shifted);
  s.steps =
      rule::into_chunks(rule::wide(at::softplus(shifted)), piece.places, piece.chunks, piece.chunk);
  s.chunks.v = s.x * s.steps.unsqueeze(-1);
  s.chunks.g = (s.steps * weights.rates.unsqueeze(-1)).neg_();
  return s;
}

void MambaMixer::forward_piece(const at::Tensor& products, const at::Tensor& conv,
                               const Piece& piece, const Weights& weights, const at::Tensor& state,
                               const at::Tensor& out) const {
  const Scan s = scan(products, conv, piece, weights);
  at::Tensor o = ops::DeltaRule(s.chunks, piece.rows).forward(state, /*keep=*/false);
  o.addcmul_(s.x, weights.skips.view({-1, 1, 1}));
  const at::Tensor y = rule::rows_of(o, piece.places, at::kFloat).flatten(1);
  const at::Tensor gates = rule::Columns(products, config_).gates.index_select(0, piece.tokens);
  const GroupNorm norm(y, rule::wide(gates), config_.key_heads, eps_);
  out.index_copy_(0, piece.tokens, (norm.normed * weights.norm).to(out.scalar_type()));
}

void MambaMixer::backward_piece(const at::Tensor& products, const at::Tensor& dout,
                                const Piece& piece, const Weights& weights, const at::Tensor& state,
                                const at::Tensor& dstate, const at::Tensor& dproducts,
                                Sums& sums) const {
  const at::ScalarType type = products.scalar_type();
  const int64_t filled = piece.chunks * piece.chunk;
  const rule::Columns from(products, config_), to(dproducts, config_);
  const Scan s = scan(products, from.conv, piece, weights);
  const at::Tensor skips = weights.skips.view({-1, 1, 1});
  ops::DeltaRule scanned(s.chunks, piece.rows);

  at::Tensor drule;
  {
    at::Tensor o = scanned.forward(state.clone(), /*keep=*/true);
    o.addcmul_(s.x, skips);
    const at::Tensor y = rule::rows_of(o, piece.places, at::kFloat).flatten(1);
    const at::Tensor gate = rule::wide(from.gates.index_select(0, piece.tokens));
    const GroupNorm norm(y, gate, config_.key_heads, eps_);
    const at::Tensor d = rule::wide(dout.index_select(0, piece.tokens));
    sums.norm.add_((d * norm.normed).sum(0));
    const at::Tensor dproduct = norm.backward(d * weights.norm);
    to.gates.index_copy_(0, piece.tokens, at::silu_backward(dproduct * y, gate).to(type));
    drule = at::zeros({filled, config_.value_size()}, y.options());
    drule.index_copy_(0, piece.places, dproduct * norm.active);
    drule = rule::to_heads(drule, piece.chunks, config_.value_heads).contiguous();
  }
  at::Tensor dx = drule * skips;
  sums.skips.add_((drule * s.x).sum(at::IntArrayRef{0, 2, 3}));

  const ops::DeltaChunks d = scanned.backward(std::exchange(drule, {}), dstate);
  dx.addcmul_(d.v, s.steps.unsqueeze(-1));
  const at::Tensor dg = rule::of_tokens(d.g, piece.places);
  sums.rates.add_((dg * rule::of_tokens(s.chunks.g, piece.places)).sum(0));
  const at::Tensor dsteps = rule::of_tokens((d.v * s.x).sum(-1), piece.places) - dg * weights.rates;
  const at::Tensor dshifted =
      at::softplus_backward(dsteps, s.softened, /*beta=*/1, /*threshold=*/20);
  sums.shifts.add_(dshifted.sum(0));
  to.decays.index_copy_(0, piece.tokens, dshifted.to(type));

  const int64_t times = config_.value_heads / config_.key_heads;
  const at::Tensor dactive =
      at::cat({rule::from_heads(dx), rule::from_heads(rule::sum_heads(d.k, times)),
               rule::from_heads(rule::sum_heads(d.q, times))},
              1);
  convolved_backward(dactive, s.conv, piece, weights, to.conv, sums);
}

}  // namespace dsj::models
