#include "engine/models/ops/routing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "engine/device/device.h"

namespace dsj::models {

using layout::ExpertsConfig;

namespace {

/// [N, E]: the scores for the choice; -inf for experts of groups that are not chosen.
at::Tensor choosing_scores(const ExpertsConfig& config, const at::Tensor& scores,
                           const at::Tensor& correction) {
  const at::Tensor corrected = correction.defined() ? scores + correction : scores;
  if (config.groups == 1) return corrected;
  const at::Tensor grouped = corrected.view({scores.size(0), config.groups, -1});
  const at::Tensor best = std::get<0>(grouped.topk(2, -1)).sum(-1);
  const at::Tensor taken = std::get<1>(best.topk(config.groups_taken, -1));
  const at::Tensor left = at::ones_like(best, best.options().dtype(at::kBool));
  return grouped.masked_fill(left.scatter(1, taken, false).unsqueeze(-1), -INFINITY)
      .view_as(corrected);
}

/// The sum of each token's weights, [N, 1].
at::Tensor sum_of(const ExpertsConfig& config, const at::Tensor& weights) {
  return weights.sum(-1, true).add_(config.sum_shift).clamp_min_(config.least_sum);
}

}  // namespace

Routing route(const ExpertsConfig& config, const at::Tensor& logits, at::ScalarType type,
              const at::Tensor& correction) {
  Routing r;
  r.probabilities =
      config.sigmoid ? logits.to(at::kFloat).sigmoid() : logits.softmax(-1, at::kFloat);
  const at::Tensor choosing = choosing_scores(config, r.probabilities, correction);
  const at::Tensor experts = std::get<1>(choosing.topk(config.per_token, -1));
  at::Tensor weights = r.probabilities.gather(1, experts);
  if (config.normalized) weights.div_(sum_of(config, weights));
  if (config.rounds_weights) weights = weights.to(type).to(at::kFloat);
  r.weights = config.scale == 1 ? weights : weights.mul(config.scale);
  r.experts = experts;
  const at::Tensor flat = experts.reshape({-1});
  const at::Tensor order = flat.argsort(/*stable=*/true, /*dim=*/0);
  r.tokens = order.div(config.per_token, "floor");
  r.places = at::empty_like(order)
                 .scatter_(0, order, at::arange(order.numel(), order.options()))
                 .view_as(experts);
  device::HostRead read(flat.bincount({}, config.count));
  const auto* counts = read.get().const_data_ptr<int64_t>();
  r.starts.assign(1, 0);
  for (int64_t expert = 0; expert < config.count; ++expert)
    r.starts.push_back(r.starts.back() + counts[expert]);
  return r;
}

at::Tensor route_backward(const ExpertsConfig& config, const Routing& routing,
                          const at::Tensor& dweights, const at::Tensor& dprobability) {
  const at::Tensor& p = routing.probabilities;
  at::Tensor d = config.scale == 1 ? dweights : dweights.mul(config.scale);
  if (config.normalized) {
    const at::Tensor chosen = p.gather(1, routing.experts), sum = sum_of(config, chosen);
    const at::Tensor through = (d * chosen / sum).sum(-1, true);
    d = (d - through.masked_fill_(sum.eq(config.least_sum), 0)) / sum;
  }
  at::Tensor dp = at::zeros_like(p).scatter_(1, routing.experts, d);
  if (dprobability.defined()) dp.add_(dprobability);
  if (config.sigmoid) return dp.mul_(p).mul_(1 - p);
  return dp.sub_((dp * p).sum(-1, true)).mul_(p);
}

RouterBalance::RouterBalance(int64_t experts, double scale, at::Device device)
    : scale_(scale),
      choices_(at::zeros({experts}, at::TensorOptions(device).dtype(at::kDouble))),
      probabilities_(at::zeros_like(choices_)) {}

void RouterBalance::add(const Routing& routing) {
  choices_.add_(routing.experts.reshape({-1}).bincount({}, choices_.size(0)));
  probabilities_.add_(routing.probabilities.sum(0, false, at::kDouble));
  tokens_ += routing.probabilities.size(0);
}

at::Tensor RouterBalance::loss() const {
  const auto tokens = static_cast<double>(std::max<int64_t>(1, tokens_));
  return choices_.dot(probabilities_)
      .mul_(static_cast<double>(choices_.size(0)) / (tokens * tokens));
}

at::Tensor RouterBalance::gradient() const {
  const auto tokens = static_cast<double>(std::max<int64_t>(1, tokens_));
  return choices_.mul(scale_ * static_cast<double>(choices_.size(0)) / (tokens * tokens))
      .to(at::kFloat);
}

}  // namespace dsj::models
