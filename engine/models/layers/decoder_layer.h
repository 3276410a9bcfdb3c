// The decoder layer (layout::Block::Llama). The config selects its norms, biases, positions,
// windows and activation, the input of the MLP, and how the outputs of attention and the MLP are
// transformed before they are added to the residual. A hybrid model has two kinds of layers: with
// attention, and with the gated delta rule or a short convolution instead.
#pragma once

#include <memory>
#include <optional>

#include "engine/models/layers/experts.h"
#include "engine/models/mixers/delta.h"
#include "engine/models/mixers/latent.h"
#include "engine/models/mixers/mamba.h"
#include "engine/models/mixers/short_conv.h"
#include "engine/models/ops/xielu.h"
#include "engine/models/unit/norms.h"
#include "engine/models/unit/pieces.h"
#include "engine/models/unit/projection.h"
#include "job/layout/units.h"

namespace dsj::models {

class DecoderLayer : public LayerInPieces {
 public:
  /// `mixer`: what the layer has before its MLP.
  explicit DecoderLayer(const layout::ModelConfig& config,
                        layout::Mixer mixer = layout::Mixer::Attention);
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                            const LayerCall& call, at::Tensor k_cache,
                            at::Tensor v_cache) const override;

 private:
  /// Index of a parameter in the unit; -1 if the model does not have it.
  int at(layout::Role role) const { return index_[static_cast<size_t>(role)]; }
  /// A path from a projection's input to the residual.
  struct Branch {
    const Projection& projection;
    layout::Role post_norm;
    int64_t site;  ///< dropout site
  };
  Branch attention_branch() const { return {o_, layout::Role::PostAttentionNorm, 1}; }
  Branch mlp_branch() const { return {down_, layout::Role::PostMlpNorm, 2}; }
  /// residual + the branch's output for h.
  at::Tensor add_branch(const zero::UnitParameters& p, const Branch& branch, const at::Tensor& h,
                        const at::Tensor& residual, const LayerCall& call,
                        LayerSaved::Branch* saved) const;
  /// residual + out, in the stream's type; `out` may be overwritten with the sum.
  at::Tensor add_result(const zero::UnitParameters& p, const Branch& branch, at::Tensor out,
                        const at::Tensor& residual, const LayerCall& call,
                        LayerSaved::Branch* saved) const;
  /// dy: gradient of the sum. Returns the gradient before scaling and dropout; may be dy itself.
  at::Tensor scaled_back(const Branch& branch, const at::Tensor& dy, const LayerCall& call) const;
  /// dy: gradient of the sum and of the residual. Returns the gradient of h. Recomputes what
  /// `saved` does not have.
  at::Tensor branch_backward(const zero::UnitParameters& p, const Branch& branch,
                             const at::Tensor& dy, const at::Tensor& h, const LayerCall& call,
                             LayerSaved::Branch saved) const;
  at::Tensor branch_norm(const zero::UnitParameters& p, const Branch& branch, const at::Tensor& out,
                         LayerSaved::Branch* saved) const;
  /// From the gradient of branch_norm()'s result to that of its input.
  at::Tensor branch_norm_backward(const zero::UnitParameters& p, const Branch& branch,
                                  const at::Tensor& dy, LayerSaved::Branch saved) const;
  ops::Dropout dropout(const LayerCall& call, const Branch& branch) const;
  ops::Attention shape(const zero::UnitParameters& p, const LayerCall& call) const;
  /// If keys serve as values, appends a copy of the key columns as values; and the backward of
  /// that.
  at::Tensor with_values(const at::Tensor& columns) const;
  at::Tensor without_values(const at::Tensor& dcolumns) const;
  /// Applies the layer's output scale to y, in place.
  at::Tensor scaled(const zero::UnitParameters& p, at::Tensor y) const;
  at::Tensor backward_sum(const zero::UnitParameters& p, at::Tensor dy,
                          const LayerCall& call) const override;
  /// The columns of heads with a norm or rotation: all but values without a norm, and but keys and
  /// values of another layer.
  at::Tensor processed_heads(const at::Tensor& qkv) const;
  /// h [N, H] → [N, query and key and value size]. The queries of tokens without an output are 0.
  /// Sets `gate` if the model has one.
  at::Tensor qkv_products(const zero::UnitParameters& p, const at::Tensor& h, const LayerCall& call,
                          LayerSaved* saved, at::Tensor& gate) const;
  /// Writes the gradients of the three projections; returns that of h.
  at::Tensor qkv_backward(const zero::UnitParameters& p, const at::Tensor& dqkv,
                          const at::Tensor& dgate, const at::Tensor& h, const LayerCall& call,
                          const LayerSaved& saved) const;
  /// Keeps keys and values for the layers that use them, unless forward has done so; and adds their
  /// gradients to dqkv, the gradient of project_qkv()'s result.
  void give_keys(const at::Tensor& qkv, const LayerCall& call) const;
  void add_given(const at::Tensor& dqkv, const LayerCall& call) const;
  at::Tensor project_qkv(const zero::UnitParameters& p, const at::Tensor& h, const LayerCall& call,
                         LayerSaved* saved, at::Tensor& gate) const;
  /// Splits [N, heads 2 D], each head's query and gate, into [N, heads D] of each; and the reverse.
  at::Tensor queries_of(const at::Tensor& product, at::Tensor& gate) const;
  at::Tensor with_gates(const at::Tensor& queries, const at::Tensor& gates) const;
  MlpInput attend(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                  LayerSaved* saved) const override;
  at::Tensor mlp_inner(const zero::UnitParameters& p, const at::Tensor& read, const LayerCall& call,
                       LayerSaved* saved) const override;
  at::Tensor mlp(const zero::UnitParameters& p, const MlpInput& in, const LayerCall& call,
                 LayerSaved* saved) const override;
  // The layer's own input (ModelConfig::layer_input).
  Branch input_branch() const { return {input_out_, layout::Role::PostLayerInputNorm, 2}; }
  /// The layer's columns of the carried inputs [N, P].
  at::Tensor own_inputs(const LayerCall& call) const;
  /// Its rows that a call's outputs have [T, P].
  at::Tensor layer_input(const LayerCall& call, int64_t rows) const;
  /// y [T, H] + the projection of the gated input. Keeps what backward reads in `saved`.
  at::Tensor add_input(const zero::UnitParameters& p, const at::Tensor& y, const LayerCall& call,
                       LayerSaved* saved) const;
  /// dy: gradient of the sum; becomes the gradient of y. Writes that of the input.
  void backward_input(const zero::UnitParameters& p, const at::Tensor& dy, const LayerCall& call,
                      LayerSaved& saved) const;
  /// Returns the gradient of the input of the experts, or of the MLP's first product.
  at::Tensor backward_experts(const zero::UnitParameters& p, const at::Tensor& dy,
                              const LayerCall& call, LayerSaved& saved) const;
  /// For experts in parallel with the MLP: the sum of both normed results, and its backward.
  Branch plain_branch() const { return {down_, layout::Role::PostPlainNorm, 2}; }
  Branch experts_branch() const { return {down_, layout::Role::PostExpertsNorm, 2}; }
  NormAt router_norm() const;
  at::Tensor beside_output(const zero::UnitParameters& p, const LayerCall& call,
                           LayerSaved& saved) const;
  void backward_beside(const zero::UnitParameters& p, const at::Tensor& dy, const at::Tensor& dread,
                       const LayerCall& call, LayerSaved& saved) const;
  at::Tensor backward_inner(const zero::UnitParameters& p, const at::Tensor& dy,
                            const LayerCall& call, LayerSaved& saved) const;
  void backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy, const at::Tensor& dread,
                    const LayerCall& call, LayerSaved& saved) const override;
  /// The activation of a plain MLP.
  at::Tensor activated(const zero::UnitParameters& p, const at::Tensor& inner) const;
  /// inner becomes its own gradient. Writes the gradients of the activation's parameters.
  void activated_backward(const zero::UnitParameters& p, const at::Tensor& da,
                          at::Tensor inner) const;
  at::Tensor backward_attention(const zero::UnitParameters& p, at::Tensor dy, at::Tensor dread,
                                const LayerCall& call, LayerSaved& saved) const override;
  /// Reorders columns by group (ModelConfig::qkv_by_group) into all query, key and value heads; and
  /// the reverse. Returns x itself if the orders are equal.
  at::Tensor from_groups(const at::Tensor& x) const;
  at::Tensor to_groups(const at::Tensor& x) const;
  at::ScalarType heads_type(const zero::UnitParameters& p) const;
  /// Rotates queries and keys (rope), in place.
  void rotate(const at::Tensor& qk, const LayerCall& call, bool inverse) const;
  /// Multiplies queries, the first columns, by a factor of their positions
  /// (ModelConfig::query_growth), in place. The backward of their gradient is the same call.
  void grow_queries(const at::Tensor& qk, const LayerCall& call) const;
  /// Norms queries and keys, and values if they have a norm (value_norm), in place.
  void head_norms(const zero::UnitParameters& p, const at::Tensor& qk, LayerSaved* saved) const;
  /// dqk: gradient of the same; becomes the gradient of the head norms' input.
  void backward_head_norms(const zero::UnitParameters& p, at::Tensor dqk, LayerSaved& saved) const;
  /// The output projection's input from attention's result and gate; one row per output.
  at::Tensor branch_input(const at::Tensor& attended, const at::Tensor& gate,
                          const LayerCall& call) const;
  /// From the gradient of branch_input()'s result to that of the output of attention's norm. `dy`:
  /// gradient of the residual after attention.
  at::Tensor backward_attended(const zero::UnitParameters& p, const at::Tensor& dy,
                               const LayerCall& call, LayerSaved& saved) const;
  /// The same for a layer without attention.
  at::Tensor backward_mixer(const zero::UnitParameters& p, const at::Tensor& dy,
                            const LayerCall& call, LayerSaved& saved) const;
  /// The saved norm, recomputed if it was not saved.
  const at::Tensor& normed_input(const zero::UnitParameters& p, LayerSaved& saved) const;
  /// The value elements of attention's result [N, heads D]; and the reverse.
  at::Tensor values_of(const at::Tensor& attended) const;
  at::Tensor from_values(const at::Tensor& dvalues) const;
  /// Turns the gradient of attention's input into that of the projections' output.
  void rotate_back(const zero::UnitParameters& p, const at::Tensor& dqkv, const LayerCall& call,
                   LayerSaved& saved) const;
  NormAt norm_at(layout::Role role) const;
  /// A product's input from x: its norm, or x if there is none, in the products' type.
  ops::Normed before(const zero::UnitParameters& p, layout::Role role, const at::Tensor& x) const;
  /// dx (+)= the gradient of x, from dh, the gradient of before()'s result.
  void backward_before(const zero::UnitParameters& p, layout::Role role, const at::Tensor& dh,
                       const at::Tensor& x, const ops::Normed& normed, at::Tensor dx) const;

  const layout::ModelConfig config_;
  std::vector<int> index_;
  Projection qkv_, q_, kv_, o_, gate_up_, down_;  ///< qkv_ is q_ and kv_ as one product
  Projection input_gate_, input_out_;
  std::optional<ExpertMlp> experts_;
  std::optional<LatentQkv> latent_;
  std::unique_ptr<const DeltaMixer> delta_;  ///< or Mamba 2
  std::optional<ShortConv> conv_;
  std::optional<Xielu> xielu_;
};

}  // namespace dsj::models
