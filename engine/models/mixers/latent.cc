#include "engine/models/mixers/latent.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"

namespace dsj::models {

using layout::Role;

namespace {

/// The epsilon of both norms, as in transformers; config.json's is for the other norms.
constexpr double kEps = 1e-6;

/// qkv [N, 3 heads D] as [N, 3, heads, D].
at::Tensor by_kind(const at::Tensor& qkv, int64_t heads, int64_t dim) {
  return qkv.view({qkv.size(0), 3, heads, dim});
}

/// A head's first `first` elements, and the others.
struct HeadParts {
  at::Tensor first, rest;
  HeadParts(const at::Tensor& heads, int64_t first_count)
      : first(heads.narrow(-1, 0, first_count)),
        rest(heads.narrow(-1, first_count, heads.size(-1) - first_count)) {}
};

}  // namespace

LatentQkv::LatentQkv(const layout::ModelConfig& config)
    : config_(config.latent), heads_(config.num_heads), dim_(config.head_dim) {
  DSJ_CHECK(config.num_kv_heads == heads_ && dim_ == config_.plain + config_.rotated);
  DSJ_CHECK(config_.value <= dim_);
  const auto roles = layout::decoder_roles(config);
  const auto at = [&](Role role) {
    const auto found = std::ranges::find(roles, role);
    return found == roles.end() ? -1 : static_cast<int>(found - roles.begin());
  };
  query_norm_ = at(Role::QueryNorm);
  norm_ = at(Role::KeyNorm);
  query_down_ = {at(Role::QueryDown), at(Role::QueryDownBias), {config_.query_rank}};
  query_ = {at(Role::Q), -1, {heads_ * dim_}};
  down_ = {at(Role::KeyDown), at(Role::KeyDownBias), {config_.rank + config_.rotated}};
  up_ = {at(Role::KeyUp), -1, {heads_ * (config_.plain + config_.value)}};
}

ops::Normed LatentQkv::norm(const zero::UnitParameters& p, int weight, const at::Tensor& x) const {
  ops::Normed normed = ops::rms_norm(x, p.weight(weight), kEps);
  normed.y = normed.y.to(p.product_type());
  return normed;
}

at::Tensor LatentQkv::norm_backward(const zero::UnitParameters& p, int weight, const at::Tensor& dy,
                                    const at::Tensor& x, const ops::Normed& normed) const {
  at::Tensor dx = at::zeros_like(x);
  const auto dw = p.grad(weight);
  ops::rms_norm_backward(dy.to(x.scalar_type()), x, p.weight(weight), normed.rstd, dx, dw.tensor,
                         dw.accumulate);
  return dx;
}

at::Tensor LatentQkv::forward(const zero::UnitParameters& p, const at::Tensor& h, DropoutKey key,
                              LayerSaved::Latents* saved) const {
  LayerSaved::Latents own;
  LayerSaved::Latents& s = saved ? *saved : own;
  at::Tensor query = h;
  if (config_.query_rank > 0) {
    s.query = project(p, query_down_, h, key).to(p.stream_type());
    s.query_norm = norm(p, query_norm_, s.query);
    query = s.query_norm.y;
  }
  const int64_t tokens = h.size(0);
  at::Tensor qkv = at::empty({tokens, 3 * heads_ * dim_}, h.options());
  const at::Tensor kinds = by_kind(qkv, heads_, dim_);
  const HeadParts q(project(p, query_, query, key).view({tokens, heads_, dim_}), config_.plain);
  const HeadParts to_q(kinds.select(1, 0), config_.rotated);
  to_q.first.copy_(q.rest);
  to_q.rest.copy_(q.first);

  const HeadParts down(project(p, down_, h, key), config_.rank);
  s.keys = down.first.to(p.stream_type()).contiguous();
  s.norm = norm(p, norm_, s.keys);
  const HeadParts up(project(p, up_, s.norm.y, key).view({tokens, heads_, -1}), config_.plain);
  const HeadParts to_k(kinds.select(1, 1), config_.rotated);
  to_k.first.copy_(down.rest.unsqueeze(1).expand({tokens, heads_, config_.rotated}));
  to_k.rest.copy_(up.first);
  const HeadParts to_v(kinds.select(1, 2), config_.value);
  to_v.first.copy_(up.rest);
  to_v.rest.zero_();
  return qkv;
}

at::Tensor LatentQkv::backward(const zero::UnitParameters& p, const at::Tensor& dqkv,
                               const at::Tensor& h, const LayerSaved::Latents& saved,
                               DropoutKey key) const {
  const int64_t tokens = h.size(0);
  const at::Tensor kinds = by_kind(dqkv, heads_, dim_);
  const HeadParts dk(kinds.select(1, 1), config_.rotated);
  const at::Tensor dup =
      at::cat({dk.rest, kinds.select(1, 2).narrow(2, 0, config_.value)}, 2).view({tokens, -1});
  const at::Tensor dlatent = norm_backward(
      p, norm_, project_backward(p, up_, dup, saved.norm.y, key), saved.keys, saved.norm);
  // All heads share the rotated part.
  const at::Tensor shared = dk.first.sum(1, false, at::kFloat);
  at::Tensor dh = project_backward(
      p, down_, at::cat({dlatent.to(h.scalar_type()), shared.to(h.scalar_type())}, 1), h, key);

  const HeadParts dq(kinds.select(1, 0), config_.rotated);
  const at::Tensor dquery = at::cat({dq.rest, dq.first}, 2).view({tokens, -1});
  if (config_.query_rank == 0) return dh.add_(project_backward(p, query_, dquery, h, key));
  const at::Tensor dquery_latent =
      norm_backward(p, query_norm_, project_backward(p, query_, dquery, saved.query_norm.y, key),
                    saved.query, saved.query_norm);
  return dh.add_(project_backward(p, query_down_, dquery_latent, h, key));
}

}  // namespace dsj::models
