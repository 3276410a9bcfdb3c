#include "engine/models/layers/decoder_layer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "common/check.h"
#include "engine/models/layers/gpt2_layer.h"
#include "engine/models/ops/factors.h"
#include "engine/models/ops/picked_rows.h"
#include "engine/models/unit/row_cut.h"

namespace dsj::models {

using layout::Role;

DecoderLayer::DecoderLayer(const layout::ModelConfig& config, layout::Mixer mixer)
    : LayerInPieces(config.parallel), config_(config), index_(layout::kRoles, -1) {
  // In a model with both plain MLPs and experts the roles of attention are equal in both kinds of
  // layers. Only a norm after the MLP has another index.
  const bool behind_experts = config.post_norms && config.experts.count > 0;
  DSJ_CHECK(!behind_experts || config.experts.dense.empty());
  const auto roles = layout::decoder_roles(config, behind_experts, mixer);
  for (size_t i = 0; i < roles.size(); ++i) index_[static_cast<size_t>(roles[i])] = int(i);
  const int64_t query = config.query_width(), kv = config.kv_size(),
                inner = config.intermediate_size;
  DSJ_CHECK(config.shapes.empty());
  DSJ_CHECK(!config.layer_scale || (!config.experts.corrected && !config.parallel &&
                                    config.activation != layout::Activation::Xielu));
  qkv_ = {at(Role::Q), at(Role::QBias), {query, kv, kv}};
  q_ = {at(Role::Q), at(Role::QBias), {query}};
  kv_ = {at(Role::K), at(Role::KBias), {kv, kv}};
  if (config.keys_are_values) {
    DSJ_CHECK(!config.fused_qkv && !config.output_gate);
    qkv_.sizes = {query, kv};
    kv_.sizes = {kv};
  }
  if (config.fused_qkv) qkv_.sizes = {query + 2 * kv};
  o_ = {at(Role::O), at(Role::OBias), {config.hidden_size}};
  gate_up_ = config.gated ? Projection{at(Role::Gate), at(Role::GateBias), {inner, inner}}
                          : Projection{at(Role::Up), at(Role::UpBias), {inner}};
  if (config.fused_gate_up) gate_up_.sizes = {2 * inner};
  down_ = {at(Role::Down), at(Role::DownBias), {config.hidden_size}};
  input_gate_ = {at(Role::LayerInputGate), -1, {config.layer_input}};
  input_out_ = {at(Role::LayerInputOut), -1, {config.hidden_size}};
  // What carried.h adds is built for Gemma 4's layers alone.
  DSJ_CHECK(!config.carries() ||
            (config.qk_norm && config.value_norm && !config.qk_norm_whole && !config.output_gate &&
             !config.qk_norm_after_rope && !config.parallel && config.post_norms &&
             !config.fused_qkv && config.experts.count == 0 && !config.sinks));
  if (config.experts.count > 0) experts_.emplace(config, mixer);
  if (config.latent.rank > 0) latent_.emplace(config);
  if (mixer == layout::Mixer::Delta && config.delta.mamba)
    delta_ = std::make_unique<MambaMixer>(config);
  else if (mixer == layout::Mixer::Delta)
    delta_ = std::make_unique<DeltaMixer>(config);
  if (mixer == layout::Mixer::Conv) conv_.emplace(config);
  if (config.activation == layout::Activation::Xielu)
    xielu_.emplace(at(Role::ActivationPositive), at(Role::ActivationNegative));
}

ops::Attention DecoderLayer::shape(const zero::UnitParameters& p, const LayerCall& call) const {
  ops::Attention shape{.heads = config_.num_heads,
                       .kv_heads = config_.num_kv_heads,
                       .dim = config_.head_dim,
                       .scale = config_.attention_scale(call.layer),
                       .window = config_.window(call.layer),
                       .cap = config_.scores_cap};
  if (call.dropout_key) shape.dropout = {config_.dropout.attention, *call.dropout_key};
  if (config_.sinks) shape.sinks = p.weight(at(Role::Sinks)).to(at::kFloat);
  return shape;
}

// ---- norms

NormAt DecoderLayer::norm_at(Role role) const {
  return {.weight = at(role),
          .bias = role == Role::Norm1   ? at(Role::Norm1Bias)
                  : role == Role::Norm2 ? at(Role::Norm2Bias)
                                        : -1};
}

ops::Normed DecoderLayer::before(const zero::UnitParameters& p, Role role,
                                 const at::Tensor& x) const {
  if (!config_.pre_norms) return {.y = x.to(p.product_type())};
  return as_factor(p, norm(p, config_, norm_at(role), x));
}

void DecoderLayer::backward_before(const zero::UnitParameters& p, Role role, const at::Tensor& dh,
                                   const at::Tensor& x, const ops::Normed& normed,
                                   at::Tensor dx) const {
  if (!config_.pre_norms)
    dx.add_(dh);
  else
    norm_backward(p, config_, norm_at(role), dh, x, normed, dx);
}

// ---- what is added to the residual

ops::Dropout DecoderLayer::dropout(const LayerCall& call, const Branch& branch) const {
  if (!call.dropout_key) return {};
  return {config_.dropout.residual, dropout_key(*call.dropout_key, branch.site)};
}

at::Tensor DecoderLayer::branch_norm(const zero::UnitParameters& p, const Branch& branch,
                                     const at::Tensor& out, LayerSaved::Branch* saved) const {
  const at::Tensor wide = out.to(p.stream_type());
  ops::Normed normed = norm(p, config_, norm_at(branch.post_norm), wide);
  at::Tensor y = std::move(normed.y);
  if (saved) *saved = {wide, normed};
  return y;
}

at::Tensor DecoderLayer::add_branch(const zero::UnitParameters& p, const Branch& branch,
                                    const at::Tensor& h, const at::Tensor& residual,
                                    const LayerCall& call, LayerSaved::Branch* saved) const {
  if (config_.adds_products())
    return project_add(p, branch.projection, h, residual, call.dropout_key);
  return add_result(p, branch, project(p, branch.projection, h, call.dropout_key), residual, call,
                    saved);
}

at::Tensor DecoderLayer::add_result(const zero::UnitParameters& p, const Branch& branch,
                                    at::Tensor out, const at::Tensor& residual,
                                    const LayerCall& call, LayerSaved::Branch* saved) const {
  if (config_.post_norms) out = branch_norm(p, branch, out, saved);
  ops::dropout(out, dropout(call, branch));
  if (config_.residual_scale != 1) out.mul_(config_.residual_scale);
  return added(residual, out);
}

at::Tensor DecoderLayer::scaled_back(const Branch& branch, const at::Tensor& dy,
                                     const LayerCall& call) const {
  const ops::Dropout dropped = dropout(call, branch);
  at::Tensor d = dy;
  if (config_.residual_scale != 1)
    d = dy.mul(config_.residual_scale);
  else if (dropped.p > 0)
    d = dy.clone();
  ops::dropout(d, dropped);
  return d;
}

at::Tensor DecoderLayer::branch_backward(const zero::UnitParameters& p, const Branch& branch,
                                         const at::Tensor& dy, const at::Tensor& h,
                                         const LayerCall& call, LayerSaved::Branch saved) const {
  if (config_.adds_products())
    return project_backward(p, branch.projection, dy, h, call.dropout_key);
  at::Tensor d = scaled_back(branch, dy, call);
  if (config_.post_norms) {
    if (!saved.out.defined())
      branch_norm(p, branch, project(p, branch.projection, h, call.dropout_key), &saved);
    d = branch_norm_backward(p, branch, d, std::move(saved));
  }
  return project_backward(p, branch.projection, d, h, call.dropout_key);
}

at::Tensor DecoderLayer::branch_norm_backward(const zero::UnitParameters& p, const Branch& branch,
                                              const at::Tensor& dy,
                                              LayerSaved::Branch saved) const {
  at::Tensor dout = at::zeros_like(saved.out);
  norm_backward(p, config_, norm_at(branch.post_norm), dy, saved.out, saved.norm, dout);
  return dout;
}

// ---- inference

at::Tensor DecoderLayer::forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                        const LayerCall& call, at::Tensor k_cache,
                                        at::Tensor v_cache) const {
  const at::Tensor h = before(p, Role::Norm1, x).y;
  at::Tensor gate, out;
  if (delta_) {
    out = delta_->forward_cached(p, h, *call.rows, {k_cache, v_cache});
  } else if (conv_) {
    out = conv_->forward_cached(p, h, *call.rows, k_cache);
  } else {
    const at::Tensor qkv = project_qkv(p, h, call, nullptr, gate);
    give_keys(qkv, call);
    out = ops::attention_cached(qkv, *call.rows, shape(p, call), k_cache, v_cache);
  }
  const at::Tensor x2 =
      add_branch(p, attention_branch(), branch_input(out, gate, call), x, call, nullptr);
  return mlp(p, {config_.parallel ? x : x2, x2}, call, nullptr);
}

namespace {

/// The layers of a model that has several kinds of them.
class MixedLayers : public Layer {
 public:
  MixedLayers(const layout::ModelConfig& config, const layout::LayerKinds& kinds)
      : kind_of_(kinds.of) {
    for (const int64_t first : kinds.first)
      kinds_.push_back(std::make_unique<DecoderLayer>(config.of_layer(first), config.mixer(first)));
  }
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                     LayerSaved* saved) const override {
    return of(call).forward(p, x, call, saved);
  }
  at::Tensor backward(const zero::UnitParameters& p, at::Tensor dy, const LayerCall& call,
                      LayerSaved saved) const override {
    return of(call).backward(p, std::move(dy), call, std::move(saved));
  }
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                            const LayerCall& call, at::Tensor k_cache,
                            at::Tensor v_cache) const override {
    return of(call).forward_cached(p, x, call, std::move(k_cache), std::move(v_cache));
  }
  LayerSaved recompute(const zero::UnitParameters& p, const at::Tensor& x,
                       const LayerCall& call) const override {
    return of(call).recompute(p, x, call);
  }

 private:
  const DecoderLayer& of(const LayerCall& call) const {
    return *kinds_[static_cast<size_t>(kind_of_[static_cast<size_t>(call.layer)])];
  }
  const std::vector<int> kind_of_;  ///< [layer]
  std::vector<std::unique_ptr<const DecoderLayer>> kinds_;
};

}  // namespace

std::unique_ptr<Layer> make_layer(const layout::ModelConfig& config) {
  if (config.block == layout::Block::Gpt2) return std::make_unique<Gpt2Layer>(config);
  const layout::LayerKinds kinds = config.layer_kinds();
  if (kinds.first.size() == 1)
    return std::make_unique<DecoderLayer>(config.of_layer(0), config.mixer(0));
  return std::make_unique<MixedLayers>(config, kinds);
}

}  // namespace dsj::models
