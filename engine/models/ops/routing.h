// Routes tokens to experts (layout::ExpertsConfig), with the auxiliary loss that balances their
// loads. Tokens are sorted by expert; the host reads the number of tokens per expert, which waits
// once for the device.
// Tested by: tests/engine/models/experts_test.cc
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "job/layout/model_config.h"

namespace dsj::models {

/// The routing of tokens [N, H]. E: number of experts, K: experts per token.
struct Routing {
  at::Tensor probabilities;     ///< [N, E] fp32: the scores before correction
  at::Tensor experts;           ///< [N, K] int64, the best first
  at::Tensor weights;           ///< [N, K] fp32
  at::Tensor tokens;            ///< [N K] int64: tokens sorted by expert, then by token
  at::Tensor places;            ///< [N, K] int64: indices of each token's choices in `tokens`
  std::vector<int64_t> starts;  ///< [E + 1]: start of each expert's tokens in `tokens`
};
/// logits [N, E]: the router's product. type: of the experts' input. correction [E] fp32: added to
/// the scores for the choice only; undefined if there is none.
Routing route(const layout::ExpertsConfig& config, const at::Tensor& logits, at::ScalarType type,
              const at::Tensor& correction = {});
/// Returns the gradient of the logits, [N, E] fp32. dweights [N, K] fp32. dprobability [E] fp32 is
/// added to the gradient of each token's probabilities; may be undefined.
at::Tensor route_backward(const layout::ExpertsConfig& config, const Routing& routing,
                          const at::Tensor& dweights, const at::Tensor& dprobability);

/// The auxiliary loss of a micro-batch that balances the experts' loads (Fedus et al. 2021,
/// equations 4 to 6, as in transformers): E times the sum over experts of an expert's share of
/// choices times its mean probability, both over all tokens and all layers with experts. Forward
/// adds each layer, so the shares are complete when backward begins. The shares have no gradient.
class RouterBalance {
 public:
  /// `scale`: factor on the gradient, including the loss's weight in the step.
  RouterBalance(int64_t experts, double scale, at::Device device);
  void add(const Routing& routing);
  /// [] double, on the device; not scaled.
  at::Tensor loss() const;
  /// The gradient of each token's probabilities, [E] fp32.
  at::Tensor gradient() const;

 private:
  double scale_;
  at::Tensor choices_;        ///< [E] double
  at::Tensor probabilities_;  ///< [E] double: sums over tokens
  int64_t tokens_ = 0;
};

/// What the experts' backward (experts.h) needs in addition to their input and ExpertMlp::inner.
struct ExpertsSaved {
  Routing routing;
  at::Tensor shares;  ///< [N, K]: weights before the experts' factors; undefined if there are none
  at::Tensor shared;  ///< [N, 2 S]: the shared expert's; undefined if there is none
};

}  // namespace dsj::models
