// A mixture of experts in place of a layer's MLP (layout::ExpertsConfig). The router's product gives
// each token a probability for every expert, in fp32; the token passes the `per_token` likeliest, and
// their results are added up by weight. Tokens are sorted by expert (routing.h), so that each expert
// that has tokens runs once, over its tokens alone. Backward is written by hand.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "engine/models/projection.h"
#include "engine/models/routing.h"
#include "job/layout/units.h"

namespace dsj::models {

/// What a mixture reads, or the gradient of it.
struct ExpertInput {
  at::Tensor h;            ///< [N, H], normed
  at::Tensor router = {};  ///< what the router reads; undefined: h
};

class ExpertMlp {
 public:
  /// `delta`: of a layer with the delta rule.
  explicit ExpertMlp(const layout::ModelConfig& config, bool delta = false);
  /// → [N K, 2 I], the input of the experts' activation, rows as in Routing::tokens.
  at::Tensor inner(const zero::UnitParameters& p, const ExpertInput& in, DropoutKey key,
                   ExpertsSaved& saved) const;
  /// [N, H] in the stream's type.
  at::Tensor output(const zero::UnitParameters& p, const at::Tensor& h, const at::Tensor& inner,
                    const ExpertsSaved& saved, DropoutKey key) const;
  /// dy [N, H] in any type: of output(). Writes the parameters' gradients; those of experts without a
  /// token are 0. Returns the gradient of what was read, in its type. `inner` becomes scratch.
  /// `balance`: null: there is no auxiliary loss.
  ExpertInput backward(const zero::UnitParameters& p, const at::Tensor& dy, const ExpertInput& in,
                       at::Tensor inner, ExpertsSaved saved, const RouterBalance* balance,
                       DropoutKey key) const;

 private:
  Projection up(int64_t expert) const;
  Projection down(int64_t expert) const;
  /// Of each choice [N, K], fp32.
  at::Tensor factors(const zero::UnitParameters& p, const Routing& routing) const;
  at::Tensor activated(const at::Tensor& inner) const;
  /// inner becomes its own gradient.
  void activated_backward(const at::Tensor& da, const at::Tensor& inner) const;
  /// Of every token, [N, H]; unscaled.
  at::Tensor shared_output(const zero::UnitParameters& p, const ExpertsSaved& saved,
                           DropoutKey key) const;
  /// Adds to dh [N, H] fp32.
  void shared_backward(const zero::UnitParameters& p, const at::Tensor& dy, const at::Tensor& h,
                       const at::Tensor& inner, at::Tensor dh, DropoutKey key) const;

  const layout::ExpertsConfig config_;
  const layout::Activation activation_;
  const int64_t hidden_;
  int first_ = 0;          ///< the first parameter of the experts
  int expert_scale_ = -1;  ///< of a trained factor for each expert; -1: there is none
  Projection router_, shared_up_, shared_down_, shared_scale_;
};

}  // namespace dsj::models
