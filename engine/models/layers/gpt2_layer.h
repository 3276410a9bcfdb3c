// GPT-2's decoder layer (layout::Block::Gpt2): LayerNorm, one fused q, k, v projection, gelu_new,
// weights stored as [in, out], dropout on probabilities and on both branches. The embedding unit
// has the learned positions. The fused projection computes queries of all tokens even if few
// outputs are needed.
#pragma once

#include "engine/models/unit/norms.h"
#include "engine/models/unit/pieces.h"
#include "engine/models/unit/projection.h"

namespace dsj::models {

class Gpt2Layer : public LayerInPieces {
 public:
  explicit Gpt2Layer(const layout::ModelConfig& config);
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                            const LayerCall& call, at::Tensor k_cache,
                            at::Tensor v_cache) const override;

 private:
  enum class Site { Attention, Residual, Mlp };
  ops::Dropout dropout(const LayerCall& call, Site site) const;
  ops::Attention shape(const LayerCall& call) const;
  /// x + dropout(projection of h).
  at::Tensor branch(const zero::UnitParameters& p, const Projection& projection,
                    const at::Tensor& h, const at::Tensor& x, const LayerCall& call,
                    Site site) const;
  /// Returns the gradient of h; that of x is dy itself.
  at::Tensor branch_backward(const zero::UnitParameters& p, const Projection& projection,
                             const at::Tensor& dy, const at::Tensor& h, const LayerCall& call,
                             Site site) const;
  MlpInput attend(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                  LayerSaved* saved) const override;
  at::Tensor mlp_inner(const zero::UnitParameters& p, const at::Tensor& x2, const LayerCall& call,
                       LayerSaved* saved) const override;
  at::Tensor mlp(const zero::UnitParameters& p, const MlpInput& in, const LayerCall& call,
                 LayerSaved* saved) const override;
  void backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy, const at::Tensor& dread,
                    const LayerCall& call, LayerSaved& saved) const override;
  at::Tensor backward_attention(const zero::UnitParameters& p, at::Tensor dy, at::Tensor dread,
                                const LayerCall& call, LayerSaved& saved) const override;
  /// The norm of x in the products' type. The norm's bias follows its weight.
  ops::Normed before(const zero::UnitParameters& p, int weight, const at::Tensor& x) const;

  const layout::ModelConfig config_;
  Projection qkv_, o_, up_, down_;
};

}  // namespace dsj::models
