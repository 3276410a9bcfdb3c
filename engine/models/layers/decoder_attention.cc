// The layer's attention: products of queries, keys and values, head norms, ropes, and back. Methods
// of decoder_layer.h.
#include <ATen/ATen.h>

#include <utility>

#include "common/check.h"
#include "engine/models/layers/decoder_layer.h"
#include "engine/models/ops/factors.h"
#include "engine/models/ops/picked_rows.h"
#include "engine/models/unit/row_cut.h"

namespace dsj::models {

using layout::Role;

namespace {

/// Views of by_group [N, groups, each + 2, D], and of its three parts, adjacent in by_kind.
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

at::Tensor DecoderLayer::processed_heads(const at::Tensor& qkv) const {
  const int64_t kv = config_.shares_keys ? 0 : config_.kv_size();
  return qkv.narrow(1, 0, config_.query_size() + (config_.value_norm ? 2 * kv : kv));
}

at::Tensor DecoderLayer::qkv_products(const zero::UnitParameters& p, const at::Tensor& h,
                                      const LayerCall& call, LayerSaved* saved,
                                      at::Tensor& gate) const {
  if (latent_) return latent_->forward(p, h, call.dropout_key, saved ? &saved->latent : nullptr);
  const int64_t query = config_.query_size();
  if (config_.shares_keys) {
    const at::Tensor& keys = call.carried->keys.at(config_.key_layer(call.layer)).kv;
    DSJ_CHECK(keys.size(0) == h.size(0));
    const at::Tensor product = project(p, q_, picked(h, call.outputs), call.dropout_key);
    return at::cat({put_back(product, call.outputs, h.size(0)), keys}, 1);
  }
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
  if (config_.shares_keys) {
    Carried::Keys& keys = call.carried->keys.at(config_.key_layer(call.layer));
    const at::Tensor dkv = dqkv.narrow(1, query, 2 * config_.kv_size());
    if (!keys.dkv.defined()) keys.dkv = at::zeros(dkv.sizes(), dkv.options().dtype(at::kFloat));
    keys.dkv.add_(dkv);
    const at::Tensor dq = picked(dqkv.narrow(1, 0, query), call.outputs);
    return put_back(project_backward(p, q_, dq, picked(h, call.outputs), call.dropout_key),
                    call.outputs, h.size(0));
  }
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

void DecoderLayer::give_keys(const at::Tensor& qkv, const LayerCall& call) const {
  if (!config_.gives_keys(call.layer)) return;
  at::Tensor& kv = call.carried->keys[call.layer].kv;
  if (!kv.defined()) kv = qkv.narrow(1, config_.query_size(), 2 * config_.kv_size()).clone();
}

void DecoderLayer::add_given(const at::Tensor& dqkv, const LayerCall& call) const {
  if (!config_.gives_keys(call.layer)) return;
  const at::Tensor given = std::exchange(call.carried->keys.at(call.layer), {}).dkv;
  if (given.defined()) dqkv.narrow(1, config_.query_size(), 2 * config_.kv_size()).add_(given);
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
  const auto norm = [&](const at::Tensor& x, Role role, int64_t heads) {
    return ops::head_norm(x, head_norm_weight(config_, p.weight(at(role)), x),
                          config_.qk_norm_whole ? 1 : heads, config_.norm_eps);
  };
  if (config_.shares_keys) {
    const at::Tensor rstd = norm(q, Role::QNorm, config_.num_heads);
    if (saved) saved->q_rstd = rstd;
    return;
  }
  const at::Tensor k = qk.narrow(1, config_.query_size(), config_.kv_size());
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

/// The type of head norms and rope.
at::ScalarType DecoderLayer::heads_type(const zero::UnitParameters& p) const {
  return config_.qk_norm && rounds_once(config_) ? at::kFloat : p.stream_type();
}

void DecoderLayer::rotate(const at::Tensor& qk, const LayerCall& call, bool inverse) const {
  if (call.rope)
    ops::rope(qk, *call.rope, call.rows->positions(),
              config_.num_heads + (config_.shares_keys ? 0 : config_.num_kv_heads),
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
  const at::Tensor heads = processed_heads(qkv);
  const bool after = config_.qk_norm_after_rope;
  const Widened wide(heads_type(p), heads);
  if (after) rotate(wide.tensor(), call, /*inverse=*/false);
  if (saved && config_.qk_norm) saved->qk = (after ? wide.tensor() : heads).clone();
  if (config_.qk_norm) head_norms(p, wide.tensor(), saved);
  if (!after) rotate(wide.tensor(), call, /*inverse=*/false);
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
  } else if (conv_) {
    at::Tensor products;
    attended.out = conv_->forward(p, norm1.y, *call.rows, call.dropout_key, products);
    if (saved) saved->x = x, saved->norm1 = norm1, saved->conv = products;
    norm1 = {};
  } else {
    at::Tensor qkv = project_qkv(p, norm1.y, call, saved, gate);
    if (saved) saved->x = x, saved->norm1 = norm1, saved->gate = gate;
    norm1 = {};
    give_keys(qkv, call);
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
  if (!config_.shares_keys) backward(q, kv, Role::KNorm, saved.k_rstd);
  if (config_.value_norm && !config_.shares_keys) {
    const at::Tensor v = qk.narrow(1, q + kv, kv);
    ops::head_norm_backward(dqk.narrow(1, q + kv, kv), v, at::ones({config_.head_dim}, v.options()),
                            saved.v_rstd, {}, false);
  }
  saved.qk.reset();
}

void DecoderLayer::rotate_back(const zero::UnitParameters& p, const at::Tensor& dqkv,
                               const LayerCall& call, LayerSaved& saved) const {
  if (!call.rope && !config_.qk_norm) return;
  const Widened wide(heads_type(p), processed_heads(dqkv));
  const bool after = config_.qk_norm_after_rope;
  grow_queries(wide.tensor(), call);
  if (!after) rotate(wide.tensor(), call, /*inverse=*/true);
  if (config_.qk_norm) backward_head_norms(p, wide.tensor(), saved);
  if (after) rotate(wide.tensor(), call, /*inverse=*/true);
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

at::Tensor DecoderLayer::backward_mixer(const zero::UnitParameters& p, const at::Tensor& dy,
                                        const LayerCall& call, LayerSaved& saved) const {
  const at::Tensor dout =
      branch_backward(p, attention_branch(), dy, branch_input(saved.attended.out, {}, call), call,
                      std::move(saved.attention));
  saved.attended = {};
  const at::Tensor all = put_back(dout, call.outputs, saved.x.size(0));
  const at::Tensor& h = normed_input(p, saved);
  if (conv_)
    return conv_->backward(p, all, h, *call.rows, std::exchange(saved.conv, {}), call.dropout_key);
  return delta_->backward(p, all, h, *call.rows, std::move(saved.delta), call.dropout_key);
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
  add_given(dqkv, call);
  rotate_back(p, dqkv, call, saved);
  at::Tensor dh = qkv_backward(p, dqkv, dgate, normed_input(p, saved), call, saved);
  saved.latent = {};
  return dh;
}

at::Tensor DecoderLayer::backward_attention(const zero::UnitParameters& p, at::Tensor dy,
                                            at::Tensor dread, const LayerCall& call,
                                            LayerSaved& saved) const {
  at::Tensor dh =
      delta_ || conv_ ? backward_mixer(p, dy, call, saved) : backward_attended(p, dy, call, saved);
  const at::Tensor dx = put_back(dy, call.outputs, saved.x.size(0));
  if (config_.parallel) dread = put_back(dread, call.outputs, saved.x.size(0));
  if (config_.shared_norm)
    dh = dread.add_(dh);
  else if (config_.parallel)
    dx.add_(dread);
  backward_before(p, Role::Norm1, dh, saved.x, saved.norm1, dx);
  return dx;
}

}  // namespace dsj::models
