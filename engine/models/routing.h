// How a router sends tokens to experts (layout::ExpertsConfig), and the auxiliary loss that balances
// their loads. Tokens are sorted by expert; the host reads how many each expert has: one wait for the
// device.
// Tested by: tests/engine/models/experts_test.cc
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "job/layout/model_config.h"

namespace dsj::models {

/// Where each token of [N, H] goes. E: experts, K: experts of a token.
struct Routing {
  at::Tensor probabilities;     ///< [N, E] fp32: the scores, before a correction
  at::Tensor experts;           ///< [N, K] int64, the best first
  at::Tensor weights;           ///< [N, K] fp32
  at::Tensor tokens;            ///< [N K] int64: tokens in the order of experts, then of tokens
  at::Tensor places;            ///< [N, K] int64: where each token's choices are in `tokens`
  std::vector<int64_t> starts;  ///< [E + 1]: where each expert's tokens begin in `tokens`
};
/// logits [N, E], of the router's product. type: of what experts read. correction [E] fp32: on the
/// scores that choose; undefined: there is none.
Routing route(const layout::ExpertsConfig& config, const at::Tensor& logits, at::ScalarType type,
              const at::Tensor& correction = {});
/// The gradient of the logits, [N, E] fp32. dweights [N, K] fp32. dprobability [E] fp32: what is
/// added to the gradient of each token's probabilities; undefined: nothing.
at::Tensor route_backward(const layout::ExpertsConfig& config, const Routing& routing,
                          const at::Tensor& dweights, const at::Tensor& dprobability);

/// The auxiliary loss of a micro-batch that balances the experts' loads (Fedus et al. 2021, equations
/// 4 to 6, as transformers computes it): E times the sum over experts of the share of choices that an
/// expert got, times its mean probability, both over all tokens and all layers with experts. Forward
/// adds each layer; the shares are complete when backward begins. They have no gradient.
class RouterBalance {
 public:
  /// `scale`: on the gradient, the loss's weight in the step included.
  RouterBalance(int64_t experts, double scale, at::Device device);
  void add(const Routing& routing);
  /// [] double, on the device; not scaled.
  at::Tensor loss() const;
  /// Of each token's probabilities, [E] fp32.
  at::Tensor gradient() const;

 private:
  double scale_;
  at::Tensor choices_;        ///< [E] double
  at::Tensor probabilities_;  ///< [E] double: sums over tokens
  int64_t tokens_ = 0;
};

/// What the experts' backward (experts.h) needs besides what they read and ExpertMlp::inner gave.
struct ExpertsSaved {
  Routing routing;
  at::Tensor shares;  ///< [N, K]: the weights before the experts' own factors; undefined: none have
  at::Tensor shared;  ///< [N, 2 S]: of the shared expert; undefined: there is none
};

}  // namespace dsj::models
