#include "engine/models/decoder_layer.h"

#include <ATen/ATen.h>

#include "engine/models/factors.h"
#include "engine/models/gpt2_layer.h"
#include "engine/models/picked_rows.h"

namespace dsj::models {

using layout::Role;

DecoderLayer::DecoderLayer(const layout::ModelConfig& config)
    : config_(config), index_(static_cast<size_t>(Role::DownBias) + 1, -1) {
  const auto roles = layout::decoder_roles(config);
  for (size_t i = 0; i < roles.size(); ++i) index_[static_cast<size_t>(roles[i])] = int(i);
  const int64_t kv = config.kv_size(), inner = config.intermediate_size;
  qkv_ = {at(Role::Q), at(Role::QBias), {config.query_size(), kv, kv}};
  q_ = {at(Role::Q), at(Role::QBias), {config.query_size()}};
  kv_ = {at(Role::K), at(Role::KBias), {kv, kv}};
  o_ = {at(Role::O), at(Role::OBias), {config.hidden_size}};
  gate_up_ = {at(Role::Gate), at(Role::GateBias), {inner, inner}};
  down_ = {at(Role::Down), at(Role::DownBias), {config.hidden_size}};
}

ops::Attention DecoderLayer::shape(const LayerCall& call) const {
  ops::Attention shape{.heads = config_.num_heads,
                       .kv_heads = config_.num_kv_heads,
                       .dim = config_.head_dim,
                       .scale = config_.attention_scale(call.layer),
                       .window = config_.window(call.layer)};
  if (call.dropout_key) shape.dropout = {config_.dropout.attention, *call.dropout_key};
  return shape;
}

ops::Normed DecoderLayer::norm(const zero::UnitParameters& p, Role role,
                               const at::Tensor& x) const {
  return as_factor(p, ops::rms_norm(x, p.weight(at(role)), config_.norm_eps));
}

at::Tensor DecoderLayer::qkv_products(const zero::UnitParameters& p, const at::Tensor& h,
                                      const LayerCall& call) const {
  if (!call.outputs) return project(p, qkv_, h, call.dropout_key);
  const int64_t query = q_.width();
  at::Tensor qkv = at::empty({h.size(0), query + kv_.width()}, h.options());
  qkv.narrow(1, query, kv_.width()).copy_(project(p, kv_, h, call.dropout_key));
  qkv.narrow(1, 0, query)
      .zero_()
      .index_copy_(0, *call.outputs, project(p, q_, picked(h, call.outputs), call.dropout_key));
  return qkv;
}

at::Tensor DecoderLayer::qkv_backward(const zero::UnitParameters& p, const at::Tensor& dqkv,
                                      const at::Tensor& h, const LayerCall& call) const {
  if (!call.outputs) return project_backward(p, qkv_, dqkv, h, call.dropout_key);
  const int64_t query = q_.width();
  at::Tensor dh = project_backward(p, kv_, dqkv.narrow(1, query, kv_.width()), h, call.dropout_key);
  const at::Tensor dq = picked(dqkv.narrow(1, 0, query), call.outputs);
  ops::scatter_rows(project_backward(p, q_, dq, picked(h, call.outputs), call.dropout_key),
                    *call.outputs, dh);
  return dh;
}

at::Tensor DecoderLayer::project_qkv(const zero::UnitParameters& p, const at::Tensor& h,
                                     const LayerCall& call, LayerSaved* saved) const {
  const int64_t heads = config_.num_heads, kv_heads = config_.num_kv_heads;
  at::Tensor qkv = qkv_products(p, h, call);
  const at::Tensor queries_keys = qkv.narrow(1, 0, config_.query_size() + config_.kv_size());
  const Widened wide(p, queries_keys);
  if (config_.qk_norm) {
    const at::Tensor q = wide.tensor().narrow(1, 0, config_.query_size());
    const at::Tensor k = wide.tensor().narrow(1, config_.query_size(), config_.kv_size());
    if (saved) saved->qk = queries_keys.clone();
    const at::Tensor q_rstd = ops::head_norm(q, p.weight(at(Role::QNorm)), heads, config_.norm_eps);
    const at::Tensor k_rstd =
        ops::head_norm(k, p.weight(at(Role::KNorm)), kv_heads, config_.norm_eps);
    if (saved) saved->q_rstd = q_rstd, saved->k_rstd = k_rstd;
  }
  ops::rope(wide.tensor(), *call.rope, call.rows->positions(), heads + kv_heads,
            /*inverse=*/false);
  wide.back();
  return qkv;
}

at::Tensor DecoderLayer::mlp_inner(const zero::UnitParameters& p, const at::Tensor& x2,
                                   const LayerCall& call, LayerSaved* saved) const {
  const ops::Normed norm2 = norm(p, Role::Norm2, x2);
  const at::Tensor gate_up = project(p, gate_up_, norm2.y, call.dropout_key);
  if (saved) {
    saved->norm2 = norm2;
    saved->inner = gate_up;
  }
  return gate_up;
}

at::Tensor DecoderLayer::mlp(const zero::UnitParameters& p, const at::Tensor& x2,
                             const LayerCall& call, LayerSaved* saved) const {
  const at::Tensor gate_up = mlp_inner(p, x2, call, saved);
  return project_add(p, down_, ops::swiglu(gate_up), x2, call.dropout_key);
}

at::Tensor DecoderLayer::attend(const zero::UnitParameters& p, const at::Tensor& x,
                                const LayerCall& call, LayerSaved* saved) const {
  ops::Normed norm1 = norm(p, Role::Norm1, x);
  at::Tensor qkv = project_qkv(p, norm1.y, call, saved);
  if (saved) saved->x = x, saved->norm1 = norm1;
  norm1 = {};
  ops::Attended attended = ops::attention(qkv, *call.rows, shape(call));
  if (saved) saved->qkv = qkv, saved->attended = attended;
  qkv.reset();
  at::Tensor x2 = project_add(p, o_, picked(attended.out, call.outputs), picked(x, call.outputs),
                              call.dropout_key);
  if (saved) saved->x2 = x2;
  return x2;
}

void DecoderLayer::backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy,
                                const LayerCall& call, LayerSaved& saved) const {
  at::Tensor dinner = std::move(saved.inner);
  ops::swiglu_backward(project_backward(p, down_, dy, ops::swiglu(dinner), call.dropout_key),
                       dinner);
  const at::Tensor dh = project_backward(p, gate_up_, dinner, saved.norm2.y, call.dropout_key);
  const auto grad = p.grad(at(Role::Norm2));
  ops::rms_norm_backward(as_read(dh, saved.x2), saved.x2, p.weight(at(Role::Norm2)),
                         saved.norm2.rstd, dy, grad.tensor, grad.accumulate);
  saved.x2.reset();
  saved.norm2 = {};
}

void DecoderLayer::backward_head_norms(const zero::UnitParameters& p, at::Tensor dqk,
                                       LayerSaved& saved) const {
  const int64_t q = config_.query_size(), kv = config_.kv_size();
  const auto q_grad = p.grad(at(Role::QNorm)), k_grad = p.grad(at(Role::KNorm));
  const at::Tensor qk = as_read(saved.qk, dqk);
  ops::head_norm_backward(dqk.narrow(1, 0, q), qk.narrow(1, 0, q), p.weight(at(Role::QNorm)),
                          saved.q_rstd, q_grad.tensor, q_grad.accumulate);
  ops::head_norm_backward(dqk.narrow(1, q, kv), qk.narrow(1, q, kv), p.weight(at(Role::KNorm)),
                          saved.k_rstd, k_grad.tensor, k_grad.accumulate);
  saved.qk.reset();
}

void DecoderLayer::rotate_back(const zero::UnitParameters& p, const at::Tensor& dqkv,
                               const LayerCall& call, LayerSaved& saved) const {
  const Widened wide(p, dqkv.narrow(1, 0, config_.query_size() + config_.kv_size()));
  ops::rope(wide.tensor(), *call.rope, call.rows->positions(),
            config_.num_heads + config_.num_kv_heads, /*inverse=*/true);
  if (config_.qk_norm) backward_head_norms(p, wide.tensor(), saved);
  wide.back();
}

at::Tensor DecoderLayer::backward_attention(const zero::UnitParameters& p, at::Tensor dy,
                                            const LayerCall& call, LayerSaved& saved) const {
  at::Tensor dattended =
      project_backward(p, o_, dy, picked(saved.attended.out, call.outputs), call.dropout_key);
  dattended = put_back(dattended, call.outputs, saved.x.size(0));
  at::Tensor dqkv = ops::attention_backward(dattended, std::move(saved.qkv), saved.attended,
                                            *call.rows, shape(call));
  dattended.reset();
  saved.attended = {};
  rotate_back(p, dqkv, call, saved);
  if (!saved.norm1.y.defined()) saved.norm1 = norm(p, Role::Norm1, saved.x);
  const at::Tensor dh = qkv_backward(p, dqkv, saved.norm1.y, call);
  const at::Tensor dx = put_back(dy, call.outputs, saved.x.size(0));
  const auto grad = p.grad(at(Role::Norm1));
  ops::rms_norm_backward(as_read(dh, saved.x), saved.x, p.weight(at(Role::Norm1)), saved.norm1.rstd,
                         dx, grad.tensor, grad.accumulate);
  return dx;
}

at::Tensor DecoderLayer::forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                        const LayerCall& call, at::Tensor k_cache,
                                        at::Tensor v_cache) const {
  const at::Tensor h = norm(p, Role::Norm1, x).y;
  const at::Tensor qkv = project_qkv(p, h, call, nullptr);
  const at::Tensor out = ops::attention_cached(qkv, *call.rows, shape(call), k_cache, v_cache);
  return mlp(p, project_add(p, o_, out, x, call.dropout_key), call, nullptr);
}

std::unique_ptr<Layer> make_layer(const layout::ModelConfig& config) {
  if (config.block == layout::Block::Gpt2) return std::make_unique<Gpt2Layer>(config);
  return std::make_unique<DecoderLayer>(config);
}

}  // namespace dsj::models
