#include "engine/models/decoder_layer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "common/check.h"
#include "engine/models/factors.h"
#include "engine/models/gpt2_layer.h"
#include "engine/models/picked_rows.h"
#include "engine/models/row_cut.h"

namespace dsj::models {

using layout::Role;

DecoderLayer::DecoderLayer(const layout::ModelConfig& config, bool delta)
    : LayerInPieces(config.parallel), config_(config), index_(layout::kRoles, -1) {
  // Of a model with plain MLPs beside experts the roles of attention are the same in both. Only a norm
  // behind the MLP lies elsewhere.
  const bool behind_experts = config.post_norms && config.experts.count > 0;
  DSJ_CHECK(!behind_experts || config.experts.dense.empty());
  const auto roles = layout::decoder_roles(config, behind_experts, delta);
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
  if (config.experts.count > 0) experts_.emplace(config, delta);
  if (config.latent.rank > 0) latent_.emplace(config);
  if (delta) delta_.emplace(config);
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

// ---- attention

namespace {

/// by_group [N, groups, each + 2, D] and the three parts of by_kind, as neighbours in memory.
struct QkvParts {
  at::Tensor groups, queries, keys, values;
  QkvParts(const at::Tensor& by_group, const at::Tensor& by_kind, int64_t heads, int64_t kv_heads,
           int64_t dim)
      : groups(by_group.view({by_group.size(0), kv_heads, heads / kv_heads + 2, dim})) {
    const auto part = [&](int64_t first, int64_t count) {
      return by_kind.narrow(1, first * dim, count * dim)
          .unflatten(1, {kv_heads, count / kv_heads, dim});
    };
    queries = part(0, heads);
    keys = part(heads, kv_heads);
    values = part(heads + kv_heads, kv_heads);
  }
  at::Tensor group_queries() const { return groups.narrow(2, 0, groups.size(2) - 2); }
  at::Tensor group_keys() const { return groups.narrow(2, groups.size(2) - 2, 1); }
  at::Tensor group_values() const { return groups.narrow(2, groups.size(2) - 1, 1); }
};

}  // namespace

at::Tensor DecoderLayer::from_groups(const at::Tensor& x) const {
  if (!config_.qkv_by_group || config_.num_kv_heads == 1) return x;
  at::Tensor out = at::empty_like(x);
  const QkvParts parts(x, out, config_.num_heads, config_.num_kv_heads, config_.head_dim);
  parts.queries.copy_(parts.group_queries());
  parts.keys.copy_(parts.group_keys());
  parts.values.copy_(parts.group_values());
  return out;
}

at::Tensor DecoderLayer::to_groups(const at::Tensor& x) const {
  if (!config_.qkv_by_group || config_.num_kv_heads == 1) return x;
  at::Tensor out = at::empty_like(x);
  const QkvParts parts(out, x, config_.num_heads, config_.num_kv_heads, config_.head_dim);
  parts.group_queries().copy_(parts.queries);
  parts.group_keys().copy_(parts.keys);
  parts.group_values().copy_(parts.values);
  return out;
}

at::Tensor DecoderLayer::queries_of(const at::Tensor& product, at::Tensor& gate) const {
  if (!config_.output_gate) return product;
  const at::Tensor heads = product.view({product.size(0), config_.num_heads, 2, config_.head_dim});
  gate = heads.select(2, 1).reshape({product.size(0), config_.query_size()});
  return heads.select(2, 0).reshape({product.size(0), config_.query_size()});
}

at::Tensor DecoderLayer::with_gates(const at::Tensor& queries, const at::Tensor& gates) const {
  if (!config_.output_gate) return queries;
  const auto by_head = [&](const at::Tensor& x) {
    return x.unflatten(1, {config_.num_heads, config_.head_dim});
  };
  return at::stack({by_head(queries), by_head(gates)}, 2).view({queries.size(0), -1});
}

at::Tensor DecoderLayer::with_values(const at::Tensor& columns) const {
  if (!config_.keys_are_values) return columns;
  const int64_t kv = config_.kv_size();
  return at::cat({columns, columns.narrow(1, columns.size(1) - kv, kv)}, 1);
}

at::Tensor DecoderLayer::without_values(const at::Tensor& dcolumns) const {
  if (!config_.keys_are_values) return dcolumns;
  const int64_t kv = config_.kv_size(), width = dcolumns.size(1);
  dcolumns.narrow(1, width - 2 * kv, kv).add_(dcolumns.narrow(1, width - kv, kv));
  return dcolumns.narrow(1, 0, width - kv);
}

at::Tensor DecoderLayer::worked_on(const at::Tensor& qkv) const {
  const int64_t kv = config_.kv_size();
  return qkv.narrow(1, 0, config_.query_size() + (config_.value_norm ? 2 * kv : kv));
}

at::Tensor DecoderLayer::qkv_products(const zero::UnitParameters& p, const at::Tensor& h,
                                      const LayerCall& call, LayerSaved* saved,
                                      at::Tensor& gate) const {
  if (latent_) return latent_->forward(p, h, call.dropout_key, saved ? &saved->latent : nullptr);
  const int64_t query = config_.query_size();
  if (!call.outputs || config_.fused_qkv) {
    const at::Tensor all = project(p, qkv_, h, call.dropout_key);
    if (!config_.output_gate) return with_values(from_groups(all));
    return at::cat(
        {queries_of(all.narrow(1, 0, q_.width()), gate), all.narrow(1, q_.width(), kv_.width())},
        1);
  }
  const int64_t kv = 2 * config_.kv_size();
  at::Tensor qkv = at::empty({h.size(0), query + kv}, h.options());
  qkv.narrow(1, query, kv).copy_(with_values(project(p, kv_, h, call.dropout_key)));
  const at::Tensor product = project(p, q_, picked(h, call.outputs), call.dropout_key);
  qkv.narrow(1, 0, query).zero_().index_copy_(0, *call.outputs, queries_of(product, gate));
  return qkv;
}

at::Tensor DecoderLayer::qkv_backward(const zero::UnitParameters& p, const at::Tensor& dqkv,
                                      const at::Tensor& dgate, const at::Tensor& h,
                                      const LayerCall& call, const LayerSaved& saved) const {
  if (latent_) return latent_->backward(p, dqkv, h, saved.latent, call.dropout_key);
  const int64_t query = config_.query_size();
  if (!call.outputs || config_.fused_qkv) {
    if (!config_.output_gate)
      return project_backward(p, qkv_, without_values(to_groups(dqkv)), h, call.dropout_key);
    const at::Tensor all = at::cat(
        {with_gates(dqkv.narrow(1, 0, query), dgate), dqkv.narrow(1, query, kv_.width())}, 1);
    return project_backward(p, qkv_, all, h, call.dropout_key);
  }
  const at::Tensor dkv = without_values(dqkv.narrow(1, query, 2 * config_.kv_size()));
  at::Tensor dh = project_backward(p, kv_, dkv, h, call.dropout_key);
  const at::Tensor dq = with_gates(picked(dqkv.narrow(1, 0, query), call.outputs), dgate);
  ops::scatter_rows(project_backward(p, q_, dq, picked(h, call.outputs), call.dropout_key),
                    *call.outputs, dh);
  return dh;
}

at::Tensor DecoderLayer::values_of(const at::Tensor& attended) const {
  if (!latent_ || config_.latent.value == config_.head_dim) return attended;
  return attended.view({-1, config_.num_heads, config_.head_dim})
      .narrow(2, 0, config_.latent.value)
      .reshape({attended.size(0), -1});
}

at::Tensor DecoderLayer::from_values(const at::Tensor& dvalues) const {
  if (!latent_ || config_.latent.value == config_.head_dim) return dvalues;
  const at::Tensor heads = dvalues.view({-1, config_.num_heads, config_.latent.value});
  return at::constant_pad_nd(heads, {0, config_.head_dim - config_.latent.value})
      .view({dvalues.size(0), -1});
}

void DecoderLayer::head_norms(const zero::UnitParameters& p, const at::Tensor& qk,
                              LayerSaved* saved) const {
  const at::Tensor q = qk.narrow(1, 0, config_.query_size());
  const at::Tensor k = qk.narrow(1, config_.query_size(), config_.kv_size());
  const auto norm = [&](const at::Tensor& x, Role role, int64_t heads) {
    return ops::head_norm(x, head_norm_weight(config_, p.weight(at(role)), x),
                          config_.qk_norm_whole ? 1 : heads, config_.norm_eps);
  };
  if (config_.value_norm) {
    const at::Tensor v = qk.narrow(1, config_.query_size() + config_.kv_size(), config_.kv_size());
    const at::Tensor v_rstd = ops::head_norm(v, at::ones({config_.head_dim}, v.options()),
                                             config_.num_kv_heads, config_.norm_eps);
    if (saved) saved->v_rstd = v_rstd;
  }
  const at::Tensor q_rstd = norm(q, Role::QNorm, config_.num_heads);
  const at::Tensor k_rstd = norm(k, Role::KNorm, config_.num_kv_heads);
  if (saved) saved->q_rstd = q_rstd, saved->k_rstd = k_rstd;
}

/// In which head norms and rope work.
at::ScalarType DecoderLayer::heads_type(const zero::UnitParameters& p) const {
  return config_.qk_norm && rounds_once(config_) ? at::kFloat : p.stream_type();
}

void DecoderLayer::turn(const at::Tensor& qk, const LayerCall& call, bool inverse) const {
  if (call.rope)
    ops::rope(qk, *call.rope, call.rows->positions(), config_.num_heads + config_.num_kv_heads,
              config_.head_dim, inverse);
}

void DecoderLayer::grow_queries(const at::Tensor& qk, const LayerCall& call) const {
  const int64_t length = config_.query_growth_length;
  if (config_.query_growth == 0 || call.rows->positions_end() <= length) return;
  const at::Tensor rounds =
      call.rows->positions().div(length, "floor").to(at::kFloat).add_(1).log_();
  qk.narrow(1, 0, config_.query_size())
      .mul_(rounds.mul_(config_.query_growth).add_(1).to(qk.scalar_type()).unsqueeze(1));
}

at::Tensor DecoderLayer::project_qkv(const zero::UnitParameters& p, const at::Tensor& h,
                                     const LayerCall& call, LayerSaved* saved,
                                     at::Tensor& gate) const {
  at::Tensor qkv = qkv_products(p, h, call, saved, gate);
  const at::Tensor heads = worked_on(qkv);
  const bool after = config_.qk_norm_after_rope;
  const Widened wide(heads_type(p), heads);
  if (after) turn(wide.tensor(), call, /*inverse=*/false);
  if (saved && config_.qk_norm) saved->qk = (after ? wide.tensor() : heads).clone();
  if (config_.qk_norm) head_norms(p, wide.tensor(), saved);
  if (!after) turn(wide.tensor(), call, /*inverse=*/false);
  grow_queries(wide.tensor(), call);
  wide.back();
  return qkv;
}

MlpInput DecoderLayer::attend(const zero::UnitParameters& p, const at::Tensor& x,
                              const LayerCall& call, LayerSaved* saved) const {
  ops::Normed norm1 = before(p, Role::Norm1, x);
  ops::Attended attended;
  at::Tensor gate;
  if (delta_) {
    attended.out =
        delta_->forward(p, norm1.y, *call.rows, call.dropout_key, saved ? &saved->delta : nullptr);
    if (saved) saved->x = x, saved->norm1 = norm1;
    norm1 = {};
  } else {
    at::Tensor qkv = project_qkv(p, norm1.y, call, saved, gate);
    if (saved) saved->x = x, saved->norm1 = norm1, saved->gate = gate;
    norm1 = {};
    attended = attention(qkv, call, shape(p, call));
    if (saved) saved->qkv = qkv;
  }
  if (saved) saved->attended = attended;
  const at::Tensor outputs = picked(x, call.outputs);
  const at::Tensor x2 = add_branch(p, attention_branch(), branch_input(attended.out, gate, call),
                                   outputs, call, saved ? &saved->attention : nullptr);
  const MlpInput in{config_.parallel ? outputs : x2, x2};
  if (saved) saved->x2 = in.read;
  return in;
}

void DecoderLayer::backward_head_norms(const zero::UnitParameters& p, at::Tensor dqk,
                                       LayerSaved& saved) const {
  const int64_t q = config_.query_size(), kv = config_.kv_size();
  const at::Tensor qk = as_read(saved.qk, dqk);
  const auto backward = [&](int64_t first, int64_t width, Role role, const at::Tensor& rstd) {
    const at::Tensor x = qk.narrow(1, first, width);
    const auto grad = p.grad(at(role));
    ops::head_norm_backward(dqk.narrow(1, first, width), x,
                            head_norm_weight(config_, p.weight(at(role)), x), rstd, grad.tensor,
                            grad.accumulate);
  };
  backward(0, q, Role::QNorm, saved.q_rstd);
  backward(q, kv, Role::KNorm, saved.k_rstd);
  if (config_.value_norm) {
    const at::Tensor v = qk.narrow(1, q + kv, kv);
    ops::head_norm_backward(dqk.narrow(1, q + kv, kv), v, at::ones({config_.head_dim}, v.options()),
                            saved.v_rstd, {}, false);
  }
  saved.qk.reset();
}

void DecoderLayer::rotate_back(const zero::UnitParameters& p, const at::Tensor& dqkv,
                               const LayerCall& call, LayerSaved& saved) const {
  if (!call.rope && !config_.qk_norm) return;
  const Widened wide(heads_type(p), worked_on(dqkv));
  const bool after = config_.qk_norm_after_rope;
  grow_queries(wide.tensor(), call);
  if (!after) turn(wide.tensor(), call, /*inverse=*/true);
  if (config_.qk_norm) backward_head_norms(p, wide.tensor(), saved);
  if (after) turn(wide.tensor(), call, /*inverse=*/true);
  wide.back();
}

at::Tensor DecoderLayer::branch_input(const at::Tensor& attended, const at::Tensor& gate,
                                      const LayerCall& call) const {
  const at::Tensor values = picked(values_of(attended), call.outputs);
  return gate.defined() ? values * gate.sigmoid() : values;
}

const at::Tensor& DecoderLayer::normed_input(const zero::UnitParameters& p,
                                             LayerSaved& saved) const {
  if (!saved.norm1.y.defined()) saved.norm1 = before(p, Role::Norm1, saved.x);
  return saved.norm1.y;
}

at::Tensor DecoderLayer::backward_delta(const zero::UnitParameters& p, const at::Tensor& dy,
                                        const LayerCall& call, LayerSaved& saved) const {
  const at::Tensor dout =
      branch_backward(p, attention_branch(), dy, branch_input(saved.attended.out, {}, call), call,
                      std::move(saved.attention));
  saved.attended = {};
  return delta_->backward(p, put_back(dout, call.outputs, saved.x.size(0)), normed_input(p, saved),
                          *call.rows, std::move(saved.delta), call.dropout_key);
}

at::Tensor DecoderLayer::backward_attended(const zero::UnitParameters& p, const at::Tensor& dy,
                                           const LayerCall& call, LayerSaved& saved) const {
  at::Tensor dattended =
      branch_backward(p, attention_branch(), dy, branch_input(saved.attended.out, saved.gate, call),
                      call, std::move(saved.attention));
  at::Tensor dgate;
  if (saved.gate.defined()) {
    const at::Tensor open = std::exchange(saved.gate, {}).sigmoid();
    dgate = at::sigmoid_backward(dattended * picked(saved.attended.out, call.outputs), open);
    dattended.mul_(open);
  }
  dattended = from_values(put_back(dattended, call.outputs, saved.x.size(0)));
  ops::Attention of_call = shape(p, call);
  const auto dsinks = config_.sinks ? p.grad(at(Role::Sinks)) : zero::GradView{};
  if (dsinks.tensor.defined()) of_call.dsinks = at::zeros_like(of_call.sinks);
  at::Tensor dqkv =
      attention_backward(dattended, std::move(saved.qkv), std::move(saved.attended), call, of_call);
  if (dsinks.tensor.defined())
    dsinks.accumulate ? dsinks.tensor.add_(of_call.dsinks) : dsinks.tensor.copy_(of_call.dsinks);
  dattended.reset();
  saved.attended = {};
  rotate_back(p, dqkv, call, saved);
  at::Tensor dh = qkv_backward(p, dqkv, dgate, normed_input(p, saved), call, saved);
  saved.latent = {};
  return dh;
}

at::Tensor DecoderLayer::backward_attention(const zero::UnitParameters& p, at::Tensor dy,
                                            at::Tensor dread, const LayerCall& call,
                                            LayerSaved& saved) const {
  at::Tensor dh =
      delta_ ? backward_delta(p, dy, call, saved) : backward_attended(p, dy, call, saved);
  const at::Tensor dx = put_back(dy, call.outputs, saved.x.size(0));
  if (config_.parallel) dread = put_back(dread, call.outputs, saved.x.size(0));
  if (config_.shared_norm)
    dh = dread.add_(dh);
  else if (config_.parallel)
    dx.add_(dread);
  backward_before(p, Role::Norm1, dh, saved.x, saved.norm1, dx);
  return dx;
}

// ---- the MLP

at::Tensor DecoderLayer::scaled(const zero::UnitParameters& p, at::Tensor y) const {
  return config_.layer_scale ? y.mul_(p.buffer(0).to(y.scalar_type())) : y;
}

at::Tensor DecoderLayer::backward_sum(const zero::UnitParameters& p, at::Tensor dy) const {
  return scaled(p, std::move(dy));
}

at::Tensor DecoderLayer::activated(const zero::UnitParameters& p, const at::Tensor& inner) const {
  return xielu_ ? xielu_->forward(p, inner)
                : ops::activated(inner, config_.activation, config_.gated);
}

void DecoderLayer::activated_backward(const zero::UnitParameters& p, const at::Tensor& da,
                                      at::Tensor inner) const {
  if (xielu_) return xielu_->backward(p, da, std::move(inner));
  ops::activated_backward(da, std::move(inner), config_.activation, config_.gated);
}

at::Tensor DecoderLayer::mlp_inner(const zero::UnitParameters& p, const at::Tensor& read,
                                   const LayerCall& call, LayerSaved* saved) const {
  const bool there =
      config_.shared_norm && saved && saved->norm1.y.defined() && call.outputs == nullptr;
  const ops::Normed norm2 =
      there ? saved->norm1 : before(p, config_.shared_norm ? Role::Norm1 : Role::Norm2, read);
  if (config_.has_experts(call.layer) && !config_.experts.beside_mlp) {
    saved->norm2 = norm2;
    saved->inner = experts_->inner(p, {norm2.y}, call.dropout_key, saved->experts);
    return saved->inner;
  }
  if (config_.has_experts(call.layer)) {
    saved->experts_read = before(p, Role::ExpertsNorm, read);
    saved->router_read = as_factor(p, norm(p, config_, router_norm(), read));
    saved->experts_inner = experts_->inner(p, {saved->experts_read.y, saved->router_read.y},
                                           call.dropout_key, saved->experts);
  }
  const at::Tensor inner = project(p, gate_up_, norm2.y, call.dropout_key);
  if (saved) {
    saved->norm2 = norm2;
    saved->inner = inner;
  }
  return inner;
}

at::Tensor DecoderLayer::mlp(const zero::UnitParameters& p, const MlpInput& in,
                             const LayerCall& call, LayerSaved* saved) const {
  LayerSaved::Branch* branch = saved ? &saved->mlp : nullptr;
  if (!config_.has_experts(call.layer)) {
    const at::Tensor inner = mlp_inner(p, in.read, call, saved);
    return scaled(p, add_branch(p, mlp_branch(), activated(p, inner), in.residual, call, branch));
  }
  LayerSaved own;
  LayerSaved& of_mlp = saved ? *saved : own;
  const at::Tensor inner = mlp_inner(p, in.read, call, &of_mlp);
  if (call.balance) call.balance->add(of_mlp.experts.routing);
  const at::Tensor out =
      config_.experts.beside_mlp
          ? beside_output(p, call, of_mlp)
          : experts_->output(p, of_mlp.norm2.y, inner, of_mlp.experts, call.dropout_key);
  return scaled(p, add_result(p, mlp_branch(), out, in.residual, call, branch));
}

// ---- experts beside an MLP

NormAt DecoderLayer::router_norm() const {
  return {.weight = at(Role::RouterScale),
          .factor = 1 / std::sqrt(static_cast<double>(config_.hidden_size))};
}

at::Tensor DecoderLayer::beside_output(const zero::UnitParameters& p, const LayerCall& call,
                                       LayerSaved& saved) const {
  const at::Tensor plain = project(p, down_, activated(p, saved.inner), call.dropout_key);
  const at::Tensor experts = experts_->output(p, saved.experts_read.y, saved.experts_inner,
                                              saved.experts, call.dropout_key);
  at::Tensor sum = branch_norm(p, plain_branch(), plain, &saved.plain_mlp);
  return sum.add_(branch_norm(p, experts_branch(), experts, &saved.expert_mlp));
}

void DecoderLayer::backward_beside(const zero::UnitParameters& p, const at::Tensor& dy,
                                   const at::Tensor& dread, const LayerCall& call,
                                   LayerSaved& saved) const {
  if (!saved.mlp.out.defined())
    branch_norm(p, mlp_branch(), beside_output(p, call, saved), &saved.mlp);
  const at::Tensor d = branch_norm_backward(p, mlp_branch(), scaled_back(mlp_branch(), dy, call),
                                            std::exchange(saved.mlp, {}));
  const auto of = [&](const Branch& branch, LayerSaved::Branch& kept) {
    return branch_norm_backward(p, branch, d, std::exchange(kept, {}));
  };
  at::Tensor dinner = std::move(saved.inner);
  activated_backward(p,
                     project_backward(p, down_, of(plain_branch(), saved.plain_mlp),
                                      activated(p, dinner), call.dropout_key),
                     dinner);
  backward_before(p, Role::Norm2,
                  project_backward(p, gate_up_, dinner, saved.norm2.y, call.dropout_key), saved.x2,
                  saved.norm2, dread);
  dinner.reset();
  const ExpertInput dexperts = experts_->backward(
      p, of(experts_branch(), saved.expert_mlp), {saved.experts_read.y, saved.router_read.y},
      std::move(saved.experts_inner), std::move(saved.experts), call.balance, call.dropout_key);
  backward_before(p, Role::ExpertsNorm, dexperts.h, saved.x2, saved.experts_read, dread);
  norm_backward(p, config_, router_norm(), dexperts.router, saved.x2, saved.router_read, dread);
  saved.experts_read = saved.router_read = {};
}

at::Tensor DecoderLayer::backward_experts(const zero::UnitParameters& p, const at::Tensor& dy,
                                          const LayerCall& call, LayerSaved& saved) const {
  at::Tensor d = scaled_back(mlp_branch(), dy, call);
  if (config_.post_norms) {
    if (!saved.mlp.out.defined())
      branch_norm(p, mlp_branch(),
                  experts_->output(p, saved.norm2.y, saved.inner, saved.experts, call.dropout_key),
                  &saved.mlp);
    d = branch_norm_backward(p, mlp_branch(), d, std::exchange(saved.mlp, {}));
  }
  return experts_
      ->backward(p, d, {saved.norm2.y}, std::move(saved.inner), std::move(saved.experts),
                 call.balance, call.dropout_key)
      .h;
}

at::Tensor DecoderLayer::backward_inner(const zero::UnitParameters& p, const at::Tensor& dy,
                                        const LayerCall& call, LayerSaved& saved) const {
  at::Tensor dinner = std::move(saved.inner);
  activated_backward(
      p, branch_backward(p, mlp_branch(), dy, activated(p, dinner), call, std::move(saved.mlp)),
      dinner);
  return project_backward(p, gate_up_, dinner, saved.norm2.y, call.dropout_key);
}

void DecoderLayer::backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy,
                                const at::Tensor& dread, const LayerCall& call,
                                LayerSaved& saved) const {
  if (config_.has_experts(call.layer) && config_.experts.beside_mlp) {
    backward_beside(p, dy, dread, call, saved);
    saved.x2.reset();
    saved.norm2 = {};
    return;
  }
  const at::Tensor dh = config_.has_experts(call.layer) ? backward_experts(p, dy, call, saved)
                                                        : backward_inner(p, dy, call, saved);
  // A norm that attention reads too takes both gradients at once, in backward_attention().
  if (config_.shared_norm)
    dread.add_(dh);
  else
    backward_before(p, Role::Norm2, dh, saved.x2, saved.norm2, dread);
  saved.x2.reset();
  saved.norm2 = {};
}

// ---- inference

at::Tensor DecoderLayer::forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                        const LayerCall& call, at::Tensor k_cache,
                                        at::Tensor v_cache) const {
  const at::Tensor h = before(p, Role::Norm1, x).y;
  at::Tensor gate, out;
  if (delta_) {
    out = delta_->forward_cached(p, h, *call.rows, {k_cache, v_cache});
  } else {
    const at::Tensor qkv = project_qkv(p, h, call, nullptr, gate);
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
      kinds_.push_back(
          std::make_unique<DecoderLayer>(config.of_layer(first), config.has_delta(first)));
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
    return std::make_unique<DecoderLayer>(config.of_layer(0), config.has_delta(0));
  return std::make_unique<MixedLayers>(config, kinds);
}

}  // namespace dsj::models
