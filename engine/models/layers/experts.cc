#include "engine/models/layers/experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine/models/ops/ops.h"

namespace dsj::models {

using layout::ExpertsConfig;
using layout::Role;

namespace {

/// Calls f(expert, first, count) for each expert that has tokens, and none(expert) for the others.
template <typename F, typename None>
void each_expert(const Routing& routing, F f, None none) {
  for (size_t expert = 0; expert + 1 < routing.starts.size(); ++expert) {
    const int64_t first = routing.starts[expert], count = routing.starts[expert + 1] - first;
    if (count > 0)
      f(static_cast<int64_t>(expert), first, count);
    else
      none(static_cast<int64_t>(expert));
  }
}

/// Adds each token's rows of x [N K, H] to out [N, H] fp32, weighted if `weights` is defined.
void add_choices(const at::Tensor& x, const Routing& routing, const at::Tensor& weights,
                 at::Tensor out) {
  for (int64_t choice = 0; choice < routing.places.size(1); ++choice) {
    const at::Tensor rows = x.index_select(0, routing.places.select(1, choice)).to(at::kFloat);
    if (weights.defined())
      out.addcmul_(rows, weights.narrow(1, choice, 1));
    else
      out.add_(rows);
  }
}

/// <a, b> of each row, [rows] fp32, divided by the factor on a; 0 if the factor is 0.
at::Tensor row_products(const at::Tensor& a, const at::Tensor& b, const at::Tensor& factor) {
  const at::Tensor sums = (a.to(at::kFloat) * b).sum(-1);
  return at::where(factor == 0, at::zeros_like(sums), sums / factor);
}

}  // namespace

ExpertMlp::ExpertMlp(const layout::ModelConfig& config, layout::Mixer mixer)
    : config_(config.experts), activation_(config.activation), hidden_(config.hidden_size) {
  DSJ_CHECK(config.gated && !config.parallel);
  const auto roles = layout::decoder_roles(config, /*experts=*/true, mixer);
  const auto at = [&](Role role) {
    return static_cast<int>(std::ranges::find(roles, role) - roles.begin());
  };
  const int64_t shared = config_.shared_inner;
  first_ = static_cast<int>(roles.size());
  router_ = {at(Role::Router), config_.router_bias ? at(Role::RouterBias) : -1, {config_.count}};
  shared_up_ = {at(Role::SharedGate), -1, {shared, shared}};
  if (config.names.shared_gate_up) shared_up_.sizes = {2 * shared};
  shared_down_ = {at(Role::SharedDown), -1, {hidden_}};
  shared_scale_ = {at(Role::SharedScale), -1, {1}};
  if (config_.beside_mlp) expert_scale_ = at(Role::ExpertScale);
}

Projection ExpertMlp::up(int64_t expert) const {
  if (config_.alternates) return {first_, first_ + 1, {2 * config_.inner}, true, expert};
  if (config_.stacked) return {first_, -1, {2 * config_.inner}, config_.turned, expert};
  return {first_ + 3 * static_cast<int>(expert), -1, {config_.inner, config_.inner}};
}

Projection ExpertMlp::down(int64_t expert) const {
  if (config_.alternates) return {first_ + 2, first_ + 3, {hidden_}, true, expert};
  if (config_.stacked) return {first_ + 1, -1, {hidden_}, config_.turned, expert};
  return {first_ + 3 * static_cast<int>(expert) + 2, -1, {hidden_}};
}

namespace {

/// gpt-oss: (up + 1) gate sigmoid(alpha gate) of clamped gate and up, whose columns alternate.
struct Clamped {
  at::Tensor gate, up, sigmoid;  ///< [n, I] fp32
  Clamped(const at::Tensor& inner, const ExpertsConfig& config)
      : gate(column(inner, 0).to(at::kFloat).clamp_max(config.clamp)),
        up(column(inner, 1).to(at::kFloat).clamp(-config.clamp, config.clamp)),
        sigmoid((gate * config.alpha).sigmoid_()) {}
  static at::Tensor column(const at::Tensor& inner, int64_t which) {
    return inner.view({inner.size(0), -1, 2}).select(2, which);
  }
};

}  // namespace

at::Tensor ExpertMlp::activated(const at::Tensor& inner) const {
  if (!config_.alternates) return ops::activated(inner, activation_, /*gated=*/true);
  const Clamped c(inner, config_);
  return ((c.up + 1) * c.gate).mul_(c.sigmoid).to(inner.scalar_type());
}

void ExpertMlp::activated_backward(const at::Tensor& da, const at::Tensor& inner) const {
  if (!config_.alternates) return ops::activated_backward(da, inner, activation_, /*gated=*/true);
  const Clamped c(inner, config_);
  const at::Tensor gate = Clamped::column(inner, 0), up = Clamped::column(inner, 1);
  const at::Tensor d = da.to(at::kFloat);
  const at::Tensor slope = c.sigmoid * (1 + config_.alpha * c.gate * (1 - c.sigmoid));
  const at::Tensor dup = (d * c.gate * c.sigmoid).mul_(up.abs().le(config_.clamp));
  gate.copy_((d * (c.up + 1) * slope).mul_(gate.le(config_.clamp)));
  up.copy_(dup);
}

at::Tensor ExpertMlp::factors(const zero::UnitParameters& p, const Routing& routing) const {
  return p.weight(expert_scale_)
      .to(at::kFloat)
      .index_select(0, routing.experts.reshape({-1}))
      .view_as(routing.weights);
}

at::Tensor ExpertMlp::inner(const zero::UnitParameters& p, const ExpertInput& in, DropoutKey key,
                            ExpertsSaved& saved) const {
  const at::Tensor& h = in.h;
  const at::Tensor& of_router = in.router.defined() ? in.router : h;
  const at::Tensor read = config_.exact_router ? of_router.to(at::kFloat) : of_router;
  saved.routing = route(config_, project(p, router_, read, key), h.scalar_type(),
                        config_.corrected ? p.buffer(0) : at::Tensor());
  if (expert_scale_ >= 0) {
    saved.shares = saved.routing.weights;
    saved.routing.weights = saved.shares * factors(p, saved.routing);
  }
  const at::Tensor& tokens = saved.routing.tokens;
  at::Tensor inner = at::empty({tokens.size(0), 2 * config_.inner}, h.options());
  const ExpertAdapter adapter = up_adapter(p);
  each_expert(
      saved.routing,
      [&](int64_t expert, int64_t first, int64_t count) {
        const at::Tensor rows = h.index_select(0, tokens.narrow(0, first, count));
        const at::Tensor of_expert = inner.narrow(0, first, count);
        of_expert.copy_(project(p, up(expert), rows, key));
        adapter.forward(expert, rows, of_expert);
      },
      [](int64_t) {});
  if (config_.shared_inner > 0) saved.shared = project(p, shared_up_, h, key);
  return inner;
}

at::Tensor ExpertMlp::shared_output(const zero::UnitParameters& p, const ExpertsSaved& saved,
                                    DropoutKey key) const {
  return project(p, shared_down_, activated(saved.shared), key);
}

at::Tensor ExpertMlp::output(const zero::UnitParameters& p, const at::Tensor& h,
                             const at::Tensor& inner, const ExpertsSaved& saved,
                             DropoutKey key) const {
  const Routing& routing = saved.routing;
  at::Tensor rows = at::empty({inner.size(0), hidden_}, h.options());
  const ExpertAdapter adapter = down_adapter(p);
  each_expert(
      routing,
      [&](int64_t expert, int64_t first, int64_t count) {
        const at::Tensor a = activated(inner.narrow(0, first, count));
        const at::Tensor of_expert = rows.narrow(0, first, count);
        of_expert.copy_(project(p, down(expert), a, key));
        adapter.forward(expert, a, of_expert);
      },
      [](int64_t) {});
  at::Tensor y = at::zeros({h.size(0), hidden_}, h.options().dtype(at::kFloat));
  add_choices(rows, routing, routing.weights, y);
  rows.reset();
  if (config_.shared_inner > 0) {
    const at::Tensor shared = shared_output(p, saved, key);
    if (config_.shared_scaled)
      y.addcmul_(shared.to(at::kFloat),
                 project(p, shared_scale_, h, key).to(at::kFloat).sigmoid_());
    else
      y.add_(shared);
  }
  return y.to(p.stream_type());
}

void ExpertMlp::shared_backward(const zero::UnitParameters& p, const at::Tensor& dy,
                                const at::Tensor& h, const at::Tensor& inner, at::Tensor dh,
                                DropoutKey key) const {
  const at::Tensor a = activated(inner);
  at::Tensor d = dy, scale;
  if (config_.shared_scaled) {
    scale = project(p, shared_scale_, h, key).to(at::kFloat).sigmoid_();
    d = dy.mul(scale).to(h.scalar_type());
  }
  const at::Tensor da = project_backward(p, shared_down_, d, a, key);
  if (config_.shared_scaled) {
    const at::Tensor dscale = row_products(da, a, scale.squeeze(1)).unsqueeze(1);
    dh.add_(project_backward(p, shared_scale_, dscale * scale * (1 - scale), h, key));
  }
  activated_backward(da, inner);
  dh.add_(project_backward(p, shared_up_, inner, h, key));
}

ExpertInput ExpertMlp::backward(const zero::UnitParameters& p, const at::Tensor& dy,
                                const ExpertInput& in, at::Tensor inner, ExpertsSaved saved,
                                const RouterBalance* balance, DropoutKey key) const {
  const at::Tensor& h = in.h;
  const Routing& routing = saved.routing;
  const at::Tensor d = dy.to(h.scalar_type());
  const auto fp32 = h.options().dtype(at::kFloat);
  // In the order of routing.tokens: the weights, then their gradients.
  const at::Tensor weights =
      at::empty({inner.size(0)}, fp32)
          .scatter_(0, routing.places.reshape({-1}), routing.weights.reshape({-1}));
  const at::Tensor dweights = at::empty({inner.size(0)}, fp32);
  at::Tensor drows = at::empty({inner.size(0), hidden_}, h.options());
  const bool stacked = config_.stacked || config_.alternates;
  if (stacked)  // each expert adds its own slice afterwards
    for (const Projection& all : {up(0), down(0)}) no_gradient(p, all);
  ExpertAdapter up_adapter = this->up_adapter(p), down_adapter = this->down_adapter(p);
  up_adapter.begin_backward();
  down_adapter.begin_backward();
  each_expert(
      routing,
      [&](int64_t expert, int64_t first, int64_t count) {
        const at::Tensor tokens = routing.tokens.narrow(0, first, count);
        const at::Tensor weight = weights.narrow(0, first, count);
        const at::Tensor of_expert = inner.narrow(0, first, count);
        const at::Tensor a = activated(of_expert);
        const at::Tensor of_tokens = d.index_select(0, tokens);
        const at::Tensor dout = of_tokens.mul(weight.unsqueeze(1));
        const at::Tensor da = project_backward(p, down(expert), dout, a, key);
        down_adapter.backward(expert, dout, a, da);
        const at::Tensor dweight = dweights.narrow(0, first, count);
        dweight.copy_(row_products(da, a, weight));
        if (const int bias = down(expert).bias; bias >= 0)  // the bias was also weighted
          dweight.add_(
              of_tokens.to(at::kFloat).mv(p.weight(bias).select(0, expert).to(at::kFloat)));
        activated_backward(da, of_expert);
        const at::Tensor rows = h.index_select(0, tokens);
        const at::Tensor drow = project_backward(p, up(expert), of_expert, rows, key);
        up_adapter.backward(expert, of_expert, rows, drow);
        drows.narrow(0, first, count).copy_(drow);
      },
      [&](int64_t expert) {
        if (stacked) return;
        no_gradient(p, up(expert));
        no_gradient(p, down(expert));
      });
  up_adapter.finish_backward();
  down_adapter.finish_backward();
  inner.reset();
  at::Tensor dh = at::zeros(h.sizes(), fp32);
  add_choices(drows, routing, {}, dh);
  drows.reset();
  at::Tensor dchoices =
      dweights.index_select(0, routing.places.reshape({-1})).view_as(routing.weights);
  if (expert_scale_ >= 0) {
    if (const auto dscale = p.grad(expert_scale_); dscale.tensor.defined()) {
      const at::Tensor sums = at::zeros({config_.count}, fp32)
                                  .index_add_(0, routing.experts.reshape({-1}),
                                              (dchoices * saved.shares).reshape({-1}));
      dscale.accumulate ? dscale.tensor.add_(sums) : dscale.tensor.copy_(sums);
    }
    dchoices.mul_(factors(p, routing));
  }
  const at::Tensor dlogits =
      route_backward(config_, routing, dchoices, balance ? balance->gradient() : at::Tensor());
  at::Tensor drouter =
      project_backward(p, router_, dlogits, in.router.defined() ? in.router : h, key);
  if (!in.router.defined()) dh.add_(std::exchange(drouter, {}));
  if (config_.shared_inner > 0) shared_backward(p, d, h, saved.shared, dh, key);
  return {dh.to(h.scalar_type()), drouter};
}

}  // namespace dsj::models
