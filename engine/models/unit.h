// Units of the model: embedding, decoder layer, head. Forward keeps what the hand-written backward
// needs. Backward writes parameter gradients where ZeRO wants them and returns the gradient of its
// input. There is no autograd: a unit's own Saved holds its activations, and nothing holds a
// weight, so a released parameter is really gone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/models/micro_batch.h"
#include "engine/models/ops.h"
#include "engine/models/routing.h"
#include "engine/models/row_bounds.h"
#include "engine/zero/model_state.h"
#include "job/layout/model_config.h"
#include "job/layout/row_pieces.h"

namespace dsj::models {

struct RowCut;

// ---- embedding
struct EmbeddingCall {
  const RowBounds* rows = nullptr;      ///< of the ids
  std::optional<uint64_t> dropout_key;  ///< as in LayerCall
  const at::Tensor* noise = nullptr;    ///< [N, H], added to the tokens' rows; null: none
};
/// [N] ids → [N, H].
at::Tensor embedding_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                             const at::Tensor& ids, const EmbeddingCall& call);
/// `dx` [N, H]: gradient of the output; becomes scratch. In a tied model the head's gradient
/// is there already: this one is added.
void embedding_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& ids, const at::Tensor& dx, const EmbeddingCall& call);

/// Mixes one more number into a key. Dropout's key is made of seed, step, micro-step, rank and
/// unit, so that recompute and resume drop the same elements.
uint64_t dropout_key(uint64_t key, int64_t part);

// ---- decoder layers
/// What a layer gets besides its parameters and its input.
struct LayerCall {
  int64_t layer = 0;                     ///< 0 is the first
  const RowBounds* rows = nullptr;       ///< of x
  const RowCut* cut = nullptr;           ///< x is a part of rows (row_cut.h); null: rows are whole
  const ops::RopeTable* rope = nullptr;  ///< of all their positions; null: nothing is rotated
  /// For this unit, micro-step and rank; nullopt: no dropout (inference).
  std::optional<uint64_t> dropout_key;
  /// [T] int64, ascending, at least one, on the device: the tokens whose output is wanted. Only
  /// they go through what no other token reads: queries, output projection, MLP. Null: all tokens.
  const at::Tensor* outputs = nullptr;
  layout::PieceRule pieces = {};  ///< how many tokens go through the MLP at a time
  /// Forward adds this layer's routing, backward takes the gradient; null: no auxiliary loss. It
  /// counts all tokens, so `outputs` is null then.
  RouterBalance* balance = nullptr;
};

/// What a layer's backward needs from its forward. Each kind of layer fills what it uses. What
/// comes after attention has only the rows of LayerCall::outputs. Without `inner`, backward
/// computes the MLP again, piece by piece, and norm1 again.
struct LayerSaved {
  /// What a norm behind attention or the MLP reads (ModelConfig::post_norms), and its sums.
  struct Branch {
    at::Tensor out;  ///< [N, H]
    ops::Normed norm;
  };
  /// Of latent attention (latent.h): the latents [N, rank] before their norms, in the stream's type.
  struct Latents {
    at::Tensor query, keys;
    ops::Normed query_norm, norm;  ///< of both
  };
  /// Of the delta rule (delta.h).
  struct Delta {
    at::Tensor products;             ///< [N, layout::DeltaConfig::width()]
    std::vector<at::Tensor> states;  ///< where a piece goes on with one, in order
  };
  at::Tensor x, x2;          ///< [N, H]: the input, and what the MLP reads (MlpInput)
  ops::Normed norm1, norm2;  ///< of x and x2
  at::Tensor qkv;            ///< rotated
  at::Tensor qk;  ///< queries and keys before their head norm; with values if these have one
  at::Tensor q_rstd, k_rstd, v_rstd;  ///< of that norm
  at::Tensor inner;                   ///< gate and up, or the activation's input
  ExpertsSaved experts;               ///< of a layer with experts
  Latents latent;
  Delta delta;
  at::Tensor gate;         ///< before its sigmoid (ModelConfig::output_gate), rows as the outputs
  ops::Attended attended;  ///< of the delta rule: `out` alone, normed and gated
  Branch attention, mlp;
  /// Of a layer with experts beside its MLP: what the two give, before their norms; the input of the
  /// experts' activation, what the experts read and what the router reads.
  Branch plain_mlp, expert_mlp;
  at::Tensor experts_inner;
  ops::Normed experts_read, router_read;
};

/// One kind of decoder layer (layout::Block). Stateless: one object serves all layers.
class Layer {
 public:
  virtual ~Layer() = default;
  /// x [N, H] → [N, H], or [T, H] where the call wants T outputs. `saved` null: nothing is kept
  /// (recompute, inference), and the MLP runs in pieces where the call's rule cuts.
  virtual at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x,
                             const LayerCall& call, LayerSaved* saved) const = 0;
  /// dy, in the shape of forward's result, becomes scratch. Returns the gradient of x [N, H].
  /// Consumes `saved`.
  virtual at::Tensor backward(const zero::UnitParameters& p, at::Tensor dy, const LayerCall& call,
                              LayerSaved saved) const = 0;
  /// Inference with the layer's cache (make_cache()), as ops::attention_cached. Gives all tokens'
  /// outputs.
  virtual at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                    const LayerCall& call, at::Tensor k_cache,
                                    at::Tensor v_cache) const = 0;
  /// What forward would have saved, without its result: no more than backward needs. Where the
  /// call's rule cuts, the MLP and norm1 are left to backward.
  virtual LayerSaved recompute(const zero::UnitParameters& p, const at::Tensor& x,
                               const LayerCall& call) const = 0;
};

std::unique_ptr<Layer> make_layer(const layout::ModelConfig& config);

/// Of a layer, for `rows` rows of up to `length` tokens, fp32 on the CPU: keys and values, each [rows,
/// kv_heads, length, D]. Of the delta rule, whatever the length, what the convolution reads of tokens
/// before, [rows, kernel - 1, columns], and the states [rows, value heads, key elements, value elements].
struct LayerCache {
  at::Tensor keys, values;
};
LayerCache make_cache(const layout::ModelConfig& config, int64_t layer, int64_t rows,
                      int64_t length);

// ---- head
struct HeadResult {
  at::Tensor loss_sum;  ///< [] double, on the device: over valid targets
  int64_t targets = 0;  ///< valid targets of this micro-batch
  at::Tensor dx;        ///< in x's shape
};
/// x [N, H], or [T, H] if the last layer gave the T targets' rows alone (MicroBatch::last_outputs).
/// Final norm, projection, cross-entropy and all their gradients in one visit. It runs over the
/// rows of x that have a target, a few at a time: the logits of a micro-batch never exist whole. A
/// token predicts the next label of its row; the last token of a row predicts nothing. The
/// gradients are those of scale * (mean loss over valid targets). `smoothing`: a target is this
/// share of all labels alike, and the rest itself (transformers' LabelSmoother). No valid target: loss
/// and gradients are 0. Where `pieces` cuts the targets, the norm runs in pieces too: besides dx
/// nothing lives for all targets.
HeadResult head_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch, double scale,
                     const layout::PieceRule& pieces = {}, double smoothing = 0);
/// The same gradients where each target has a weight of its own: those of the sum of weight * loss.
/// `weights` [targets] float, on the device.
HeadResult head_turn_weighted(const zero::UnitParameters& p, const layout::ModelConfig& config,
                              const at::Tensor& x, const MicroBatch& batch,
                              const at::Tensor& weights, const layout::PieceRule& pieces = {});
/// Of consecutive parts of the targets the sums of their losses, [parts] double, on the device, no
/// gradients. `parts`: how many targets each has; together all of them (DSJ_CHECK).
at::Tensor head_part_losses(const zero::UnitParameters& p, const layout::ModelConfig& config,
                            const at::Tensor& x, const MicroBatch& batch,
                            std::span<const int64_t> parts, const layout::PieceRule& pieces = {});
/// head_turn's loss alone: the same bits, no gradients, `dx` undefined.
HeadResult head_loss(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch,
                     const layout::PieceRule& pieces = {}, double smoothing = 0);
/// Logits [rows, V] of given rows of x, for inference and tests.
at::Tensor head_logits(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x);

/// Of a reward model (ModelConfig::scored): the scores of the micro-batch's targets, [targets] double, on the
/// device. x as of head_turn().
at::Tensor head_scores(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x, const MicroBatch& batch);
/// The gradients of the sum of slope * score. `slopes` [targets] float, on the device. Returns that of x.
at::Tensor head_score_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                           const at::Tensor& x, const MicroBatch& batch, const at::Tensor& slopes);

/// For tests: logit elements that the head holds at a time; 0: as layout::logit_elements says.
void set_logits_limit(int64_t elements);

}  // namespace dsj::models
