#include "engine/models/layers/gpt2_layer.h"

#include <ATen/ATen.h>

#include "engine/models/ops/factors.h"
#include "engine/models/ops/picked_rows.h"
#include "engine/models/unit/row_cut.h"

namespace dsj::models {
namespace {

/// Parameters of a layer, in the order of layout::units_of.
enum Index {
  kNorm1,
  kNorm1Bias,
  kQkv,
  kQkvBias,
  kO,
  kOBias,
  kNorm2,
  kNorm2Bias,
  kUp,
  kUpBias,
  kDown,
  kDownBias
};

/// The tanh form is that of transformers' gelu_new, which rounds after each operation.
bool is_gelu_new(const layout::ModelConfig& config) {
  return config.activation == layout::Activation::GeluTanh;
}

at::Tensor gpt2_activated(const layout::ModelConfig& config, const at::Tensor& inner) {
  return is_gelu_new(config) ? ops::gelu_new(inner)
                             : ops::activated(inner, config.activation, /*gated=*/false);
}

/// `inner` becomes its gradient.
void gpt2_activated_backward(const layout::ModelConfig& config, const at::Tensor& da,
                             const at::Tensor& inner) {
  if (is_gelu_new(config))
    ops::gelu_new_backward(da, inner);
  else
    ops::activated_backward(da, inner, config.activation, /*gated=*/false);
}

}  // namespace

Gpt2Layer::Gpt2Layer(const layout::ModelConfig& config)
    : LayerInPieces(/*parallel=*/false), config_(config) {
  const int64_t hidden = config.hidden_size;
  qkv_ = {kQkv, kQkvBias, {3 * hidden}, /*transposed=*/true};
  o_ = {kO, kOBias, {hidden}, true};
  up_ = {kUp, kUpBias, {config.intermediate_size}, true};
  down_ = {kDown, kDownBias, {hidden}, true};
}

ops::Dropout Gpt2Layer::dropout(const LayerCall& call, Site site) const {
  if (!call.dropout_key) return {};
  const double p = site == Site::Attention ? config_.dropout.attention : config_.dropout.residual;
  return {p, dropout_key(*call.dropout_key, static_cast<int64_t>(site))};
}

ops::Attention Gpt2Layer::shape(const LayerCall& call) const {
  return {.heads = config_.num_heads,
          .kv_heads = config_.num_heads,
          .dim = config_.head_dim,
          .scale = config_.attention_scale(call.layer),
          .dropout = dropout(call, Site::Attention)};
}

at::Tensor Gpt2Layer::branch(const zero::UnitParameters& p, const Projection& projection,
                             const at::Tensor& h, const at::Tensor& x, const LayerCall& call,
                             Site site) const {
  at::Tensor out = project(p, projection, h, call.dropout_key);
  ops::dropout(out, dropout(call, site));
  return added(x, out);
}

at::Tensor Gpt2Layer::branch_backward(const zero::UnitParameters& p, const Projection& projection,
                                      const at::Tensor& dy, const at::Tensor& h,
                                      const LayerCall& call, Site site) const {
  const ops::Dropout dropped = dropout(call, site);
  if (dropped.p <= 0) return project_backward(p, projection, dy, h, call.dropout_key);
  const at::Tensor d = dy.to(p.product_type(), /*non_blocking=*/false, /*copy=*/true);
  ops::dropout(d, dropped);
  return project_backward(p, projection, d, h, call.dropout_key);
}

ops::Normed Gpt2Layer::before(const zero::UnitParameters& p, int weight,
                              const at::Tensor& x) const {
  return as_factor(p, norm(p, config_, {weight, weight + 1}, x));
}

MlpInput Gpt2Layer::attend(const zero::UnitParameters& p, const at::Tensor& x,
                           const LayerCall& call, LayerSaved* saved) const {
  ops::Normed norm1 = before(p, kNorm1, x);
  at::Tensor qkv = project(p, qkv_, norm1.y, call.dropout_key);
  if (saved) saved->x = x, saved->norm1 = norm1;
  norm1 = {};
  ops::Attended attended = attention(qkv, call, shape(call));
  if (saved) saved->qkv = qkv, saved->attended = attended;
  qkv.reset();
  const at::Tensor x2 = branch(p, o_, picked(attended.out, call.outputs), picked(x, call.outputs),
                               call, Site::Residual);
  if (saved) saved->x2 = x2;
  return {x2, x2};
}

at::Tensor Gpt2Layer::mlp_inner(const zero::UnitParameters& p, const at::Tensor& x2,
                                const LayerCall& call, LayerSaved* saved) const {
  ops::Normed norm2 = before(p, kNorm2, x2);
  const at::Tensor inner = project(p, up_, norm2.y, call.dropout_key);
  if (saved) saved->norm2 = std::move(norm2), saved->inner = inner;
  return inner;
}

at::Tensor Gpt2Layer::mlp(const zero::UnitParameters& p, const MlpInput& in, const LayerCall& call,
                          LayerSaved* saved) const {
  return branch(p, down_, gpt2_activated(config_, mlp_inner(p, in.read, call, saved)), in.residual,
                call, Site::Mlp);
}

void Gpt2Layer::backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy,
                             const at::Tensor& dread, const LayerCall& call,
                             LayerSaved& saved) const {
  const at::Tensor dinner = std::move(saved.inner);
  gpt2_activated_backward(
      config_, branch_backward(p, down_, dy, gpt2_activated(config_, dinner), call, Site::Mlp),
      dinner);
  norm_backward(p, config_, {kNorm2, kNorm2Bias},
                project_backward(p, up_, dinner, saved.norm2.y, call.dropout_key), saved.x2,
                saved.norm2, dread);
  saved.x2.reset();
  saved.norm2 = {};
}

at::Tensor Gpt2Layer::backward_attention(const zero::UnitParameters& p, at::Tensor dy, at::Tensor,
                                         const LayerCall& call, LayerSaved& saved) const {
  const int64_t tokens = saved.x.size(0);
  at::Tensor dattended =
      branch_backward(p, o_, dy, picked(saved.attended.out, call.outputs), call, Site::Residual);
  dattended = put_back(dattended, call.outputs, tokens);
  const at::Tensor dqkv = attention_backward(dattended, std::move(saved.qkv),
                                             std::move(saved.attended), call, shape(call));
  saved.attended = {};
  dattended.reset();
  if (!saved.norm1.y.defined()) saved.norm1 = before(p, kNorm1, saved.x);
  const at::Tensor dh = project_backward(p, qkv_, dqkv, saved.norm1.y, call.dropout_key);
  const at::Tensor dx = put_back(dy, call.outputs, tokens);
  norm_backward(p, config_, {kNorm1, kNorm1Bias}, dh, saved.x, saved.norm1, dx);
  return dx;
}

at::Tensor Gpt2Layer::forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                     const LayerCall& call, at::Tensor k_cache,
                                     at::Tensor v_cache) const {
  const at::Tensor qkv = project(p, qkv_, before(p, kNorm1, x).y, call.dropout_key);
  const at::Tensor out = ops::attention_cached(qkv, *call.rows, shape(call), k_cache, v_cache);
  const at::Tensor x2 = branch(p, o_, out, x, call, Site::Residual);
  return mlp(p, {x2, x2}, call, nullptr);
}

}  // namespace dsj::models
