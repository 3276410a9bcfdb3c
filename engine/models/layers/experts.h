// A mixture of experts (layout::ExpertsConfig), used instead of a layer's MLP. The router gives
// each token a probability for every expert, in fp32. The token goes to the `per_token` most likely
// ones, whose results are summed by weight. Tokens are sorted by expert (routing.h), so that each
// expert with tokens runs once, on its tokens only. Backward is written by hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/models/ops/routing.h"
#include "engine/models/unit/expert_adapter.h"
#include "engine/models/unit/projection.h"
#include "job/layout/units.h"

namespace dsj::models {

/// The input of a mixture, or its gradient.
struct ExpertInput {
  at::Tensor h;            ///< [N, H], normed
  at::Tensor router = {};  ///< the router's input; h if undefined
};

class ExpertMlp {
 public:
  /// `mixer`: of the experts' layers.
  explicit ExpertMlp(const layout::ModelConfig& config,
                     layout::Mixer mixer = layout::Mixer::Attention);
  /// Returns [N K, 2 I], the input of the experts' activation, rows as in Routing::tokens.
  at::Tensor inner(const zero::UnitParameters& p, const ExpertInput& in, DropoutKey key,
                   ExpertsSaved& saved) const;
  /// Returns [N, H] in the stream's type.
  at::Tensor output(const zero::UnitParameters& p, const at::Tensor& h, const at::Tensor& inner,
                    const ExpertsSaved& saved, DropoutKey key) const;
  /// dy [N, H] in any type: gradient of output(). Writes the parameters' gradients; 0 for experts
  /// without tokens. Returns the gradient of the input, in its type. Overwrites `inner`. `balance`:
  /// null if there is no auxiliary loss.
  ExpertInput backward(const zero::UnitParameters& p, const at::Tensor& dy, const ExpertInput& in,
                       at::Tensor inner, ExpertsSaved saved, const RouterBalance* balance,
                       DropoutKey key) const;

 private:
  Projection up(int64_t expert) const;
  Projection down(int64_t expert) const;
  /// Of all experts.
  ExpertAdapter up_adapter(const zero::UnitParameters& p) const { return {p, up(0).weight}; }
  ExpertAdapter down_adapter(const zero::UnitParameters& p) const { return {p, down(0).weight}; }
  /// The trained factor of each choice, [N, K] fp32.
  at::Tensor factors(const zero::UnitParameters& p, const Routing& routing) const;
  at::Tensor activated(const at::Tensor& inner) const;
  /// inner becomes its own gradient.
  void activated_backward(const at::Tensor& da, const at::Tensor& inner) const;
  /// The shared expert's output for every token, [N, H]; unscaled.
  at::Tensor shared_output(const zero::UnitParameters& p, const ExpertsSaved& saved,
                           DropoutKey key) const;
  /// Adds to dh [N, H] fp32.
  void shared_backward(const zero::UnitParameters& p, const at::Tensor& dy, const at::Tensor& h,
                       const at::Tensor& inner, at::Tensor dh, DropoutKey key) const;

  const layout::ExpertsConfig config_;
  const layout::Activation activation_;
  const int64_t hidden_;
  int first_ = 0;          ///< the first parameter of the experts
  int expert_scale_ = -1;  ///< index of the experts' trained factors, or -1
  Projection router_, shared_up_, shared_down_, shared_scale_;
};

}  // namespace dsj::models
