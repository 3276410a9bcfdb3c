// The llama-like decoder layer (layout::Block::Llama): RMSNorm, rotary attention with shared key
// and value heads, gated SiLU. The config says which biases, head norms and windows there are.
#pragma once

#include "engine/models/pieces.h"
#include "engine/models/projection.h"
#include "job/layout/units.h"

namespace dsj::models {

class DecoderLayer : public LayerInPieces {
 public:
  explicit DecoderLayer(const layout::ModelConfig& config);
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                            const LayerCall& call, at::Tensor k_cache,
                            at::Tensor v_cache) const override;

 private:
  /// Index of a parameter in the unit; -1: the model has none.
  int at(layout::Role role) const { return index_[static_cast<size_t>(role)]; }
  ops::Attention shape(const LayerCall& call) const;
  /// h [N, H] → [N, query and key and value size]. The queries of tokens without an output are 0.
  at::Tensor qkv_products(const zero::UnitParameters& p, const at::Tensor& h,
                          const LayerCall& call) const;
  /// Writes the gradients of the three; returns that of h.
  at::Tensor qkv_backward(const zero::UnitParameters& p, const at::Tensor& dqkv,
                          const at::Tensor& h, const LayerCall& call) const;
  at::Tensor project_qkv(const zero::UnitParameters& p, const at::Tensor& h, const LayerCall& call,
                         LayerSaved* saved) const;
  at::Tensor attend(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                    LayerSaved* saved) const override;
  at::Tensor mlp_inner(const zero::UnitParameters& p, const at::Tensor& x2, const LayerCall& call,
                       LayerSaved* saved) const override;
  at::Tensor mlp(const zero::UnitParameters& p, const at::Tensor& x2, const LayerCall& call,
                 LayerSaved* saved) const override;
  void backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy, const LayerCall& call,
                    LayerSaved& saved) const override;
  at::Tensor backward_attention(const zero::UnitParameters& p, at::Tensor dy, const LayerCall& call,
                                LayerSaved& saved) const override;
  /// dqk: of queries and keys; becomes the gradient of what their head norms read.
  void backward_head_norms(const zero::UnitParameters& p, at::Tensor dqk, LayerSaved& saved) const;
  /// The gradient of what attention reads becomes that of the projections' output.
  void rotate_back(const zero::UnitParameters& p, const at::Tensor& dqkv, const LayerCall& call,
                   LayerSaved& saved) const;
  /// Of x, in the products' type.
  ops::Normed norm(const zero::UnitParameters& p, layout::Role role, const at::Tensor& x) const;

  const layout::ModelConfig config_;
  std::vector<int> index_;
  Projection qkv_, q_, kv_, o_, gate_up_, down_;  ///< qkv_ is q_ and kv_ as one product
};

}  // namespace dsj::models
