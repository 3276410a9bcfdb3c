// The decoder layer (layout::Block::Llama). The config says which norms, biases, positions, windows
// and activation it has, what the MLP reads, and what is done to what attention and the MLP give
// before it is added to the residual. A hybrid model has layers of two kinds: with attention, and with
// the gated delta rule in its place.
#pragma once

#include <optional>

#include "engine/models/delta.h"
#include "engine/models/experts.h"
#include "engine/models/latent.h"
#include "engine/models/norms.h"
#include "engine/models/pieces.h"
#include "engine/models/projection.h"
#include "engine/models/xielu.h"
#include "job/layout/units.h"

namespace dsj::models {

class DecoderLayer : public LayerInPieces {
 public:
  /// `delta`: with the delta rule in place of attention.
  explicit DecoderLayer(const layout::ModelConfig& config, bool delta = false);
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                            const LayerCall& call, at::Tensor k_cache,
                            at::Tensor v_cache) const override;

 private:
  /// Index of a parameter in the unit; -1: the model has none.
  int at(layout::Role role) const { return index_[static_cast<size_t>(role)]; }
  /// A way from a projection's input to the residual.
  struct Branch {
    const Projection& projection;
    layout::Role post_norm;
    int64_t site;  ///< of its dropout
  };
  Branch attention_branch() const { return {o_, layout::Role::PostAttentionNorm, 1}; }
  Branch mlp_branch() const { return {down_, layout::Role::PostMlpNorm, 2}; }
  /// residual + what the branch makes of h.
  at::Tensor add_branch(const zero::UnitParameters& p, const Branch& branch, const at::Tensor& h,
                        const at::Tensor& residual, const LayerCall& call,
                        LayerSaved::Branch* saved) const;
  /// residual + out, the branch's result, in the stream's type; `out` may become the sum.
  at::Tensor add_result(const zero::UnitParameters& p, const Branch& branch, at::Tensor out,
                        const at::Tensor& residual, const LayerCall& call,
                        LayerSaved::Branch* saved) const;
  /// dy: of the sum. Returns the gradient of what is scaled and dropped; maybe dy itself.
  at::Tensor scaled_back(const Branch& branch, const at::Tensor& dy, const LayerCall& call) const;
  /// dy: of the sum, which is also the residual's. Returns the gradient of h. What `saved` lacks is
  /// computed again.
  at::Tensor branch_backward(const zero::UnitParameters& p, const Branch& branch,
                             const at::Tensor& dy, const at::Tensor& h, const LayerCall& call,
                             LayerSaved::Branch saved) const;
  at::Tensor branch_norm(const zero::UnitParameters& p, const Branch& branch, const at::Tensor& out,
                         LayerSaved::Branch* saved) const;
  /// The gradient of what branch_norm() read, from that of its result.
  at::Tensor branch_norm_backward(const zero::UnitParameters& p, const Branch& branch,
                                  const at::Tensor& dy, LayerSaved::Branch saved) const;
  ops::Dropout dropout(const LayerCall& call, const Branch& branch) const;
  ops::Attention shape(const zero::UnitParameters& p, const LayerCall& call) const;
  /// Columns of a product of keys, and values if they have one → of keys and values; and back.
  at::Tensor with_values(const at::Tensor& columns) const;
  at::Tensor without_values(const at::Tensor& dcolumns) const;
  /// The result of a layer, in place.
  at::Tensor scaled(const zero::UnitParameters& p, at::Tensor y) const;
  at::Tensor backward_sum(const zero::UnitParameters& p, at::Tensor dy) const override;
  /// Heads that have a norm or turn: all but values without a norm.
  at::Tensor worked_on(const at::Tensor& qkv) const;
  /// h [N, H] → [N, query and key and value size]. The queries of tokens without an output are 0.
  /// `gate` becomes the gate, if the model has one.
  at::Tensor qkv_products(const zero::UnitParameters& p, const at::Tensor& h, const LayerCall& call,
                          LayerSaved* saved, at::Tensor& gate) const;
  /// Writes the gradients of the three; returns that of h.
  at::Tensor qkv_backward(const zero::UnitParameters& p, const at::Tensor& dqkv,
                          const at::Tensor& dgate, const at::Tensor& h, const LayerCall& call,
                          const LayerSaved& saved) const;
  at::Tensor project_qkv(const zero::UnitParameters& p, const at::Tensor& h, const LayerCall& call,
                         LayerSaved* saved, at::Tensor& gate) const;
  /// [N, heads 2 D], each head's query and gate, or only queries ← and → [N, heads D] of each.
  at::Tensor queries_of(const at::Tensor& product, at::Tensor& gate) const;
  at::Tensor with_gates(const at::Tensor& queries, const at::Tensor& gates) const;
  MlpInput attend(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                  LayerSaved* saved) const override;
  at::Tensor mlp_inner(const zero::UnitParameters& p, const at::Tensor& read, const LayerCall& call,
                       LayerSaved* saved) const override;
  at::Tensor mlp(const zero::UnitParameters& p, const MlpInput& in, const LayerCall& call,
                 LayerSaved* saved) const override;
  /// The gradient of what the experts, or the MLP's first product, read.
  at::Tensor backward_experts(const zero::UnitParameters& p, const at::Tensor& dy,
                              const LayerCall& call, LayerSaved& saved) const;
  /// Of experts beside the MLP: both results, normed, added up; of dy, all gradients.
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
  /// Of a plain MLP.
  at::Tensor activated(const zero::UnitParameters& p, const at::Tensor& inner) const;
  /// inner becomes its own gradient. Writes the gradients of the activation's parameters.
  void activated_backward(const zero::UnitParameters& p, const at::Tensor& da,
                          at::Tensor inner) const;
  at::Tensor backward_attention(const zero::UnitParameters& p, at::Tensor dy, at::Tensor dread,
                                const LayerCall& call, LayerSaved& saved) const override;
  /// Columns by group (ModelConfig::qkv_by_group) → all query heads, key heads, value heads; and
  /// back. x itself where both are one order.
  at::Tensor from_groups(const at::Tensor& x) const;
  at::Tensor to_groups(const at::Tensor& x) const;
  at::ScalarType heads_type(const zero::UnitParameters& p) const;
  /// Turns queries and keys, in place.
  void turn(const at::Tensor& qk, const LayerCall& call, bool inverse) const;
  /// Multiplies queries, the first columns, by what their positions say (ModelConfig::query_growth), in
  /// place. Of their gradient the same.
  void grow_queries(const at::Tensor& qk, const LayerCall& call) const;
  /// Of queries and keys, and of values if these have one (value_norm), in place.
  void head_norms(const zero::UnitParameters& p, const at::Tensor& qk, LayerSaved* saved) const;
  /// dqk: of the same; becomes the gradient of what their head norms read.
  void backward_head_norms(const zero::UnitParameters& p, at::Tensor dqk, LayerSaved& saved) const;
  /// What the output projection reads of attention's result and gate, rows as the outputs.
  at::Tensor branch_input(const at::Tensor& attended, const at::Tensor& gate,
                          const LayerCall& call) const;
  /// The gradient of what attention's norm gives, from that of branch_input()'s result. `dy`: of the
  /// residual behind it.
  at::Tensor backward_attended(const zero::UnitParameters& p, const at::Tensor& dy,
                               const LayerCall& call, LayerSaved& saved) const;
  at::Tensor backward_delta(const zero::UnitParameters& p, const at::Tensor& dy,
                            const LayerCall& call, LayerSaved& saved) const;
  /// What is saved, or else computed again.
  const at::Tensor& normed_input(const zero::UnitParameters& p, LayerSaved& saved) const;
  /// A value head's elements of attention's result [N, heads D], and back.
  at::Tensor values_of(const at::Tensor& attended) const;
  at::Tensor from_values(const at::Tensor& dvalues) const;
  /// The gradient of what attention reads becomes that of the projections' output.
  void rotate_back(const zero::UnitParameters& p, const at::Tensor& dqkv, const LayerCall& call,
                   LayerSaved& saved) const;
  NormAt norm_at(layout::Role role) const;
  /// What a product reads of x: its norm, or x itself where there is none; in the products' type.
  ops::Normed before(const zero::UnitParameters& p, layout::Role role, const at::Tensor& x) const;
  /// dx (+)= the gradient of x, dh that of what before() gave.
  void backward_before(const zero::UnitParameters& p, layout::Role role, const at::Tensor& dh,
                       const at::Tensor& x, const ops::Normed& normed, at::Tensor dx) const;

  const layout::ModelConfig config_;
  std::vector<int> index_;
  Projection qkv_, q_, kv_, o_, gate_up_, down_;  ///< qkv_ is q_ and kv_ as one product
  std::optional<ExpertMlp> experts_;
  std::optional<LatentQkv> latent_;
  std::optional<DeltaMixer> delta_;
  std::optional<Xielu> xielu_;
};

}  // namespace dsj::models
