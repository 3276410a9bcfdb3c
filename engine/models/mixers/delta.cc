#include "engine/models/mixers/delta.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/models/ops/delta_parts.h"
#include "engine/models/ops/delta_rule.h"

namespace dsj::models {

using layout::DeltaGroup;
using layout::DeltaPiece;
using layout::Role;
using rule::Columns;
using rule::from_heads;
using rule::repeat_heads;
using rule::rows_of;
using rule::sum_heads;
using rule::to_heads;
using rule::wide;

namespace {

/// Added to the sum of squares of a query or key head, as in transformers.
constexpr double kLengthEps = 1e-6;

/// The columns [N, key_heads, parts, ...] of the products by key head, as views of each part.
struct GroupedColumns {
  at::Tensor queries, keys, values, gates;  ///< [N, key_heads, elements]
  GroupedColumns(const at::Tensor& product, const layout::DeltaConfig& c) {
    const int64_t values_of = c.value_size() / c.key_heads;
    const at::Tensor heads = product.view({product.size(0), c.key_heads, -1});
    queries = heads.narrow(2, 0, c.key_dim);
    keys = heads.narrow(2, c.key_dim, c.key_dim);
    values = heads.narrow(2, 2 * c.key_dim, values_of);
    gates = heads.narrow(2, 2 * c.key_dim + values_of, values_of);
  }
};

/// 1 / length of each head's vector.
at::Tensor inverse_lengths(const at::Tensor& x) {
  return x.square().sum(-1, true).add_(kLengthEps).rsqrt_();
}

void add_grad(const zero::GradView& grad, const at::Tensor& sum) {
  if (!grad.tensor.defined()) return;  // frozen
  const at::Tensor shaped = sum.view(grad.tensor.sizes());
  grad.accumulate ? grad.tensor.add_(shaped) : grad.tensor.copy_(shaped);
}

std::vector<int64_t> lengths_of(const RowBounds& rows) {
  std::vector<int64_t> lengths;
  for (int64_t row = 0; row < rows.rows(); ++row) lengths.push_back(rows.length(row));
  return lengths;
}

at::Tensor indices(const std::vector<int64_t>& values, at::Device device) {
  return device::upload(at::tensor(values), device);
}

}  // namespace

/// The input of the rule, and the intermediate results that backward needs.
struct DeltaMixer::Read {
  Convolved conv;
  at::Tensor q, k;                ///< [C, key heads, T, D] of length 1
  at::Tensor q_length, k_length;  ///< their inverse lengths before that
  at::Tensor strengths;           ///< [n, value heads], sigmoid in the products' type
  at::Tensor steps;               ///< [n, value heads] fp32: the input of softplus
  at::Tensor decays;              ///< [n, value heads] fp32
  ops::DeltaChunks chunks;
};

DeltaMixer::DeltaMixer(const layout::ModelConfig& config)
    : config_(config.delta), eps_(config.norm_eps) {
  DSJ_CHECK(config_.value_heads % config_.key_heads == 0);
  const auto roles = layout::decoder_roles(config, /*experts=*/false, layout::Mixer::Delta);
  const auto at = [&](Role role) {
    return static_cast<int>(std::ranges::find(roles, role) - roles.begin());
  };
  conv_ = at(Role::DeltaConv);
  rates_ = at(Role::DeltaRates);
  shifts_ = at(Role::DeltaShifts);
  norm_ = at(Role::DeltaNorm);
  conv_bias_ = at(Role::DeltaConvBias);
  skips_ = at(Role::DeltaSkips);
  const int64_t heads = config_.value_heads, value = config_.value_size();
  grouped_ = {at(Role::DeltaQkv), -1, {config_.conv_size() + value}};
  pairs_ = {at(Role::DeltaStrengths), -1, {2 * heads}};
  all_ = {at(Role::DeltaQkv), -1, {config_.conv_size(), heads, heads, value}};
  if (config_.mamba) all_.sizes = {config_.width()};
}

// ---- the products

at::Tensor DeltaMixer::products(const zero::UnitParameters& p, const at::Tensor& h,
                                DropoutKey key) const {
  if (!config_.by_group) return project(p, all_, h, key);
  const int64_t heads = config_.key_heads;
  at::Tensor out = at::empty({h.size(0), config_.width()}, h.options());
  const Columns to(out, config_);
  const auto copy = [&](const at::Tensor& columns, const at::Tensor& from) {
    to.by_key_head(columns, heads).copy_(from);
  };
  {
    const GroupedColumns from(project(p, grouped_, h, key), config_);
    copy(to.queries, from.queries);
    copy(to.keys, from.keys);
    copy(to.values, from.values);
    copy(to.gates, from.gates);
  }
  const at::Tensor pairs = project(p, pairs_, h, key).view({h.size(0), heads, -1});
  const int64_t each = pairs.size(2) / 2;
  copy(to.strengths, pairs.narrow(2, 0, each));
  copy(to.decays, pairs.narrow(2, each, each));
  return out;
}

at::Tensor DeltaMixer::products_backward(const zero::UnitParameters& p, const at::Tensor& dproducts,
                                         const at::Tensor& h, DropoutKey key) const {
  if (!config_.by_group) return project_backward(p, all_, dproducts, h, key);
  const int64_t heads = config_.key_heads, tokens = h.size(0);
  const Columns from(dproducts, config_);
  const auto of = [&](const at::Tensor& columns) { return from.by_key_head(columns, heads); };
  const at::Tensor grouped =
      at::cat({of(from.queries), of(from.keys), of(from.values), of(from.gates)}, 2);
  at::Tensor dh = project_backward(p, grouped_, grouped.view({tokens, -1}), h, key);
  const at::Tensor pairs = at::cat({of(from.strengths), of(from.decays)}, 2);
  return dh.add_(project_backward(p, pairs_, pairs.view({tokens, -1}), h, key));
}

// ---- pieces

DeltaMixer::Piece DeltaMixer::piece_of(const DeltaGroup& group, const DeltaPiece& cut,
                                       const RowBounds& rows, int64_t history) const {
  const int64_t halo = config_.kernel - 1;
  std::vector<int64_t> tokens, places, seen, seen_places;
  int64_t chunk = 0;
  for (size_t step = 0; step < cut.rows.size(); ++step) {
    const int64_t first = (cut.first_step + static_cast<int64_t>(step)) * group.chunk;
    for (int64_t i = 0; i < cut.rows[step]; ++i, ++chunk) {
      const int64_t row = group.rows[i], start = rows.starts()[row];
      const int64_t end = std::min(first + group.chunk, rows.length(row));
      for (int64_t t = std::max(-history, first - halo); t < end; ++t) {
        seen.push_back(start + (row + 1) * history + t);
        seen_places.push_back(chunk * (halo + group.chunk) + halo + t - first);
        if (t < first) continue;
        tokens.push_back(start + t);
        places.push_back(chunk * group.chunk + t - first);
      }
    }
  }
  const at::Device device = rows.positions().device();
  return {.rows = cut.rows,
          .chunks = chunk,
          .chunk = group.chunk,
          .tokens = indices(tokens, device),
          .places = indices(places, device),
          .seen = indices(seen, device),
          .seen_places = indices(seen_places, device)};
}

DeltaMixer::Convolved DeltaMixer::convolved(const at::Tensor& conv, const Piece& piece,
                                            const Weights& weights) const {
  const int64_t kernel = config_.kernel, width = config_.conv_size();
  Convolved c;
  c.seen = at::zeros({piece.chunks * (kernel - 1 + piece.chunk), width}, conv.options());
  c.seen.index_copy_(0, piece.seen_places, conv.index_select(0, piece.seen));
  c.seen = c.seen.view({piece.chunks, -1, width});
  at::Tensor sum = at::zeros({piece.chunks, piece.chunk, width}, conv.options().dtype(at::kFloat));
  for (int64_t i = 0; i < kernel; ++i)
    sum.addcmul_(wide(c.seen.narrow(1, i, piece.chunk)), weights.conv.select(1, i));
  if (weights.conv_bias.defined()) sum.add_(weights.conv_bias);
  c.mixed = sum.view({piece.chunks * piece.chunk, width}).to(conv.scalar_type());
  return c;
}

void DeltaMixer::convolved_backward(const at::Tensor& dactive, const Convolved& c,
                                    const Piece& piece, const Weights& weights,
                                    const at::Tensor& dconv, Sums& sums) const {
  const at::Tensor dmixed =
      at::silu_backward(dactive, wide(c.mixed)).view({piece.chunks, piece.chunk, -1});
  at::Tensor dseen = at::zeros(c.seen.sizes(), dmixed.options());
  for (int64_t i = 0; i < config_.kernel; ++i) {
    const at::Tensor x = wide(c.seen.narrow(1, i, piece.chunk));
    sums.conv.select(1, i).add_((dmixed * x).sum(at::IntArrayRef{0, 1}));
    dseen.narrow(1, i, piece.chunk).addcmul_(dmixed, weights.conv.select(1, i));
  }
  if (sums.conv_bias.defined()) sums.conv_bias.add_(dmixed.sum(at::IntArrayRef{0, 1}));
  dconv.index_add_(0, piece.seen,
                   dseen.flatten(0, 1).index_select(0, piece.seen_places).to(dconv.scalar_type()));
}

DeltaMixer::Read DeltaMixer::read(const at::Tensor& products, const at::Tensor& conv,
                                  const Piece& piece, const Weights& weights) const {
  const Columns columns(products, config_);
  Read r;
  r.conv = convolved(conv, piece, weights);
  const at::Tensor active = at::silu(r.conv.mixed);
  const auto heads = [&](int64_t first, int64_t size, int64_t count) {
    return wide(to_heads(active.narrow(1, first, size), piece.chunks, count)).contiguous();
  };
  const int64_t key = config_.key_size(), times = config_.value_heads / config_.key_heads;
  r.q = heads(0, key, config_.key_heads);
  r.k = heads(key, key, config_.key_heads);
  r.q_length = inverse_lengths(r.q);
  r.k_length = inverse_lengths(r.k);
  r.q.mul_(r.q_length);
  r.k.mul_(r.k_length);
  const double scale = 1 / std::sqrt(static_cast<double>(config_.key_dim));
  r.chunks.q = repeat_heads(r.q * scale, times);
  r.chunks.k = repeat_heads(r.k, times);
  r.chunks.v = heads(2 * key, config_.value_size(), config_.value_heads);

  const auto filled_up = [&](const at::Tensor& x) {
    return rule::into_chunks(x, piece.places, piece.chunks, piece.chunk);
  };
  r.strengths = columns.strengths.index_select(0, piece.tokens).sigmoid_();
  r.steps = wide(columns.decays.index_select(0, piece.tokens)) + weights.shifts;
  r.decays = at::softplus(r.steps).mul_(weights.rates).neg_();
  r.chunks.beta = filled_up(wide(r.strengths));
  r.chunks.g = filled_up(r.decays);
  return r;
}

namespace {

/// The gated norm of rows [n, heads, D], and what its backward needs.
struct GatedNorm {
  at::Tensor rstd, normed;  ///< fp32; in the products' type
  at::Tensor scaled;        ///< times the weight
  at::Tensor gate, active;  ///< fp32
  GatedNorm(const at::Tensor& x, const at::Tensor& gates, const at::Tensor& weight, double eps) {
    const at::Tensor all = wide(x);
    rstd = all.square().mean(-1, true).add_(eps).rsqrt_();
    normed = (all * rstd).to(x.scalar_type());
    scaled = weight * normed;
    gate = wide(gates);
    active = at::silu(gate);
  }
  at::Tensor y() const { return (scaled * active).to(normed.scalar_type()); }
};

}  // namespace

void DeltaMixer::forward_piece(const at::Tensor& products, const at::Tensor& conv,
                               const Piece& piece, const Weights& weights, const at::Tensor& state,
                               const at::Tensor& out) const {
  const ops::DeltaChunks chunks = read(products, conv, piece, weights).chunks;
  const at::Tensor o = ops::DeltaRule(chunks, piece.rows).forward(state, /*keep=*/false);
  const at::Tensor gates = Columns(products, config_).gates.index_select(0, piece.tokens);
  const at::Tensor x = rows_of(o, piece.places, products.scalar_type());
  const GatedNorm norm(x, gates.view(x.sizes()), weights.norm, eps_);
  out.index_copy_(0, piece.tokens, norm.y().flatten(1));
}

namespace {

/// dy: gradient of y = x * length, where length is the inverse length of x. Returns that of x.
at::Tensor length_backward(const at::Tensor& dy, const at::Tensor& y, const at::Tensor& length) {
  return (dy - y * (dy * y).sum(-1, true)).mul_(length);
}

}  // namespace

void DeltaMixer::backward_piece(const at::Tensor& products, const at::Tensor& dout,
                                const Piece& piece, const Weights& weights, const at::Tensor& state,
                                const at::Tensor& dstate, const at::Tensor& dproducts,
                                Sums& sums) const {
  const at::ScalarType type = products.scalar_type();
  const int64_t heads = config_.value_heads, filled = piece.chunks * piece.chunk;
  const Columns from(products, config_), to(dproducts, config_);
  const Read r = read(products, from.conv, piece, weights);
  ops::DeltaRule rule(r.chunks, piece.rows);

  // The gated norm.
  at::Tensor drule;
  {
    const at::Tensor x = rows_of(rule.forward(state.clone(), /*keep=*/true), piece.places, type);
    const at::Tensor gates = from.gates.index_select(0, piece.tokens).view(x.sizes());
    const GatedNorm norm(x, gates, weights.norm, eps_);
    at::Tensor d = wide(dout.index_select(0, piece.tokens)).view(x.sizes());
    to.gates.index_copy_(0, piece.tokens,
                         at::silu_backward(d * norm.scaled, norm.gate).flatten(1).to(type));
    d.mul_(norm.active);
    sums.norm.add_((d * norm.normed).sum(at::IntArrayRef{0, 1}));
    d.mul_(weights.norm);
    const at::Tensor normed = wide(x) * norm.rstd;
    d.sub_(normed * (d * normed).mean(-1, true)).mul_(norm.rstd);
    drule = at::zeros({filled, heads * config_.value_dim}, d.options());
    drule.index_copy_(0, piece.places, d.flatten(1));
    drule = to_heads(drule, piece.chunks, heads).contiguous();
  }

  // The rule.
  ops::DeltaChunks d = rule.backward(std::exchange(drule, {}), dstate);
  const auto of_tokens = [&](const at::Tensor& x) { return rule::of_tokens(x, piece.places); };
  const at::Tensor strengths = wide(r.strengths);
  to.strengths.index_copy_(0, piece.tokens,
                           (of_tokens(d.beta) * strengths * (1 - strengths)).to(type));
  const at::Tensor dg = of_tokens(d.g);
  sums.rates.add_((dg * r.decays).sum(0));
  const at::Tensor dsteps =
      at::softplus_backward(dg * weights.rates, r.steps, /*beta=*/1, /*threshold=*/20).neg_();
  sums.shifts.add_(dsteps.sum(0));
  to.decays.index_copy_(0, piece.tokens, dsteps.to(type));

  // Lengths, SiLU, the convolution.
  const int64_t times = heads / config_.key_heads;
  const double scale = 1 / std::sqrt(static_cast<double>(config_.key_dim));
  const at::Tensor dq = length_backward(sum_heads(d.q, times).mul_(scale), r.q, r.q_length);
  const at::Tensor dk = length_backward(sum_heads(d.k, times), r.k, r.k_length);
  const at::Tensor dactive = at::cat({from_heads(dq), from_heads(dk), from_heads(d.v)}, 1);
  d = {};
  convolved_backward(dactive, r.conv, piece, weights, to.conv, sums);
}

DeltaMixer::Weights DeltaMixer::weights_of(const zero::UnitParameters& p) const {
  const at::Tensor conv = p.weight(conv_);
  Weights weights{.conv = wide(conv.view({conv.size(0), conv.size(2)}).to(p.product_type())),
                  .rates = wide(p.weight(rates_)).exp(),
                  .shifts = wide(p.weight(shifts_)),
                  .norm = p.weight(norm_)};
  if (!config_.mamba) return weights;
  weights.norm = wide(weights.norm);
  weights.skips = wide(p.weight(skips_));
  if (config_.conv_bias) weights.conv_bias = wide(p.weight(conv_bias_).to(p.product_type()));
  return weights;
}

at::Tensor DeltaMixer::zero_state(int64_t rows, const at::Tensor& like) const {
  return at::zeros({rows, config_.value_heads, config_.key_dim, config_.value_dim},
                   like.options().dtype(at::kFloat));
}

at::Tensor DeltaMixer::forward(const zero::UnitParameters& p, const at::Tensor& h,
                               const RowBounds& rows, DropoutKey key,
                               LayerSaved::Delta* saved) const {
  const at::Tensor all = products(p, h, key);
  const at::Tensor conv = Columns(all, config_).conv;
  const Weights weights = weights_of(p);
  at::Tensor out = at::empty({h.size(0), config_.value_size()}, h.options());
  for (const DeltaGroup& group : layout::delta_groups(lengths_of(rows))) {
    const at::Tensor state = zero_state(std::ssize(group.rows), h);
    for (const DeltaPiece& cut : group.pieces) {
      const at::Tensor running = state.narrow(0, 0, cut.rows.front());
      if (saved && cut.first_step > 0) saved->states.push_back(running.clone());
      forward_piece(all, conv, piece_of(group, cut, rows, 0), weights, running, out);
    }
  }
  if (saved) saved->products = all;
  return out;
}

at::Tensor DeltaMixer::backward(const zero::UnitParameters& p, const at::Tensor& dout,
                                const at::Tensor& h, const RowBounds& rows, LayerSaved::Delta saved,
                                DropoutKey key) const {
  const Weights weights = weights_of(p);
  const auto sum_of = [](const at::Tensor& like) {
    return at::zeros(like.sizes(), like.options().dtype(at::kFloat));
  };
  Sums sums{.conv = sum_of(weights.conv),
            .rates = sum_of(weights.rates),
            .shifts = sum_of(weights.shifts),
            .norm = sum_of(weights.norm)};
  if (weights.conv_bias.defined()) sums.conv_bias = sum_of(weights.conv_bias);
  if (weights.skips.defined()) sums.skips = sum_of(weights.skips);
  const at::Tensor dproducts = at::zeros_like(saved.products);
  auto state = saved.states.begin();  // state of the group's second piece
  for (const DeltaGroup& group : layout::delta_groups(lengths_of(rows))) {
    const at::Tensor dstate = zero_state(std::ssize(group.rows), h);
    for (size_t i = group.pieces.size(); i-- > 0;) {
      const DeltaPiece& cut = group.pieces[i];
      const int64_t count = cut.rows.front();
      const at::Tensor before =
          i > 0 ? *(state + static_cast<ptrdiff_t>(i) - 1) : zero_state(count, h);
      backward_piece(saved.products, dout, piece_of(group, cut, rows, 0), weights, before,
                     dstate.narrow(0, 0, count), dproducts, sums);
    }
    state += std::ssize(group.pieces) - 1;
  }
  saved = {};
  add_grad(p.grad(conv_), sums.conv);
  add_grad(p.grad(rates_), sums.rates);
  add_grad(p.grad(shifts_), sums.shifts);
  add_grad(p.grad(norm_), sums.norm);
  if (sums.conv_bias.defined()) add_grad(p.grad(conv_bias_), sums.conv_bias);
  if (sums.skips.defined()) add_grad(p.grad(skips_), sums.skips);
  return products_backward(p, dproducts, h, key);
}

// ---- inference

at::Tensor DeltaMixer::forward_cached(const zero::UnitParameters& p, const at::Tensor& h,
                                      const RowBounds& rows, const LayerCache& cache) const {
  const at::Tensor all = products(p, h, {});
  const Weights weights = weights_of(p);
  if (rows.runs().front().first == 0) {
    cache.keys.zero_();
    cache.values.zero_();
  }
  // Each row follows the convolution's earlier input of that row.
  const int64_t history = config_.kernel - 1;
  std::vector<at::Tensor> parts;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const at::Tensor one =
        at::cat({cache.keys.select(0, row),
                 Columns(all, config_).conv.narrow(0, rows.starts()[row], rows.length(row))});
    cache.keys.select(0, row).copy_(one.narrow(0, rows.length(row), history));
    parts.push_back(one);
  }
  const at::Tensor conv = at::cat(parts);
  at::Tensor out = at::empty({h.size(0), config_.value_size()}, h.options());
  for (const DeltaGroup& group : layout::delta_groups(lengths_of(rows))) {
    const at::Tensor places = device::upload(at::tensor(group.rows), h.device());
    const at::Tensor state = cache.values.index_select(0, places);
    for (const DeltaPiece& cut : group.pieces)
      forward_piece(all, conv, piece_of(group, cut, rows, history), weights,
                    state.narrow(0, 0, cut.rows.front()), out);
    cache.values.index_copy_(0, places, state);
  }
  return out;
}

LayerCache make_cache(const layout::ModelConfig& config, int64_t layer, int64_t rows,
                      int64_t length, at::Device place) {
  const layout::DeltaConfig& delta = config.delta;
  if (config.has_delta(layer))
    return {at::zeros({rows, delta.kernel - 1, delta.conv_size()}, place),
            at::zeros({rows, delta.value_heads, delta.key_dim, delta.value_dim}, place)};
  if (config.has_conv(layer))
    return {at::zeros({rows, config.conv.kernel - 1, config.hidden_size}, place), {}};
  const layout::ModelConfig of_layer = config.of_layer(layer);
  const auto empty = [&] {
    return at::empty({rows, of_layer.num_kv_heads, length, of_layer.head_dim}, place);
  };
  return {empty(), empty()};
}

}  // namespace dsj::models
