// Units of the model: embedding, decoder layer, head. Forward saves what the hand-written backward
// needs. Backward writes parameter gradients where ZeRO wants them and returns the gradient of its
// input. There is no autograd: a unit's Saved has its activations and no weights, so that releasing
// a parameter frees its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/models/ops/ops.h"
#include "engine/models/ops/routing.h"
#include "engine/models/ops/row_bounds.h"
#include "engine/models/unit/carried.h"
#include "engine/models/unit/micro_batch.h"
#include "engine/zero/model_state.h"
#include "job/layout/model_config.h"
#include "job/layout/row_pieces.h"

namespace dsj::models {

struct RowCut;

// ---- embedding
struct EmbeddingCall {
  const RowBounds* rows = nullptr;      ///< of the ids
  std::optional<uint64_t> dropout_key;  ///< as in LayerCall
  const at::Tensor* noise = nullptr;    ///< [N, H], added to the embeddings; may be null
};
/// [N] ids → [N, H].
at::Tensor embedding_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                             const at::Tensor& ids, const EmbeddingCall& call);
/// `dx` [N, H]: gradient of the output; overwritten. In a tied model this adds to the head's
/// gradient of the same weight.
void embedding_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& ids, const at::Tensor& dx, const EmbeddingCall& call);

/// Mixes a number into a key. Dropout's key consists of seed, step, micro-step, rank and unit, so
/// that recomputation and resume drop the same elements.
uint64_t dropout_key(uint64_t key, int64_t part);

// ---- inputs of layers (carried.h)
// The units before the layers (layout::UnitSpec::before_layers), in order: a second embedding of
// each token, [V, L P]; then a projection of the first embedding, normed by layer, is added.

/// Sets carried.inputs to the rows of `ids` [N].
void layer_table_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                         const at::Tensor& ids, Carried& carried);
/// Overwrites and frees carried.inputs.
void layer_table_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                          const at::Tensor& ids, Carried& carried);
/// x [N, H]: the embedding's result. Runs `pieces.piece` tokens at a time.
void layer_inputs_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                          const at::Tensor& x, std::optional<uint64_t> dropout_key,
                          const layout::PieceRule& pieces, Carried& carried);
/// dx [N, H] += the gradient of x, which is carried.embedded. Leaves the gradient of
/// layer_table_forward()'s result in carried.inputs.
void layer_inputs_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                           at::Tensor dx, std::optional<uint64_t> dropout_key,
                           const layout::PieceRule& pieces, Carried& carried);
/// Both forward functions, for inference: `table` and `inputs` are the two units.
void carry_inputs(const zero::UnitParameters& table, const zero::UnitParameters& inputs,
                  const layout::ModelConfig& config, const at::Tensor& ids, const at::Tensor& x,
                  Carried& carried);

// ---- decoder layers
/// A layer's arguments other than its parameters and its input.
struct LayerCall {
  int64_t layer = 0;                     ///< 0 is the first
  const RowBounds* rows = nullptr;       ///< of x
  const RowCut* cut = nullptr;           ///< set if x is a part of its rows (row_cut.h)
  const ops::RopeTable* rope = nullptr;  ///< for all their positions; null if nothing is rotated
  /// For this unit, micro-step and rank; nullopt means no dropout (inference).
  std::optional<uint64_t> dropout_key;
  /// [T] int64, ascending, at least one, on the device: the tokens that need an output. Only these
  /// go through what other tokens do not need: queries, output projection, MLP. Null: all.
  const at::Tensor* outputs = nullptr;
  layout::PieceRule pieces = {};  ///< number of tokens per piece of the MLP
  /// Forward adds this layer's routing, backward reads the gradient; null without auxiliary loss.
  /// It counts all tokens, so `outputs` must then be null.
  RouterBalance* balance = nullptr;
  Carried* carried = nullptr;  ///< of the micro-batch; null unless ModelConfig::carries()
  int64_t first_output = 0;    ///< for a piece of an MLP: its first row's index among the outputs
};

/// What a layer's backward needs from its forward. Each kind of layer sets the members that it
/// uses. Everything after attention has only the rows of LayerCall::outputs. If `inner` is
/// undefined, backward recomputes the MLP piece by piece, and norm1.
struct LayerSaved {
  /// The input of a norm after attention or the MLP (ModelConfig::post_norms), and its sums.
  struct Branch {
    at::Tensor out;  ///< [N, H]
    ops::Normed norm;
  };
  /// For latent attention (latent.h): the latents [N, rank] before their norms, of the stream's
  /// type.
  struct Latents {
    at::Tensor query, keys;
    ops::Normed query_norm, norm;  ///< of both
  };
  /// For the delta rule (delta.h).
  struct Delta {
    at::Tensor products;             ///< [N, layout::DeltaConfig::width()]
    std::vector<at::Tensor> states;  ///< at each piece that continues a row, in order
  };
  at::Tensor x, x2;          ///< [N, H]: the layer's input, and the MLP's (MlpInput)
  ops::Normed norm1, norm2;  ///< of x and x2
  at::Tensor qkv;            ///< rotated
  at::Tensor qk;             ///< queries and keys before their head norm; with values if normed
  at::Tensor q_rstd, k_rstd, v_rstd;  ///< of that norm
  at::Tensor inner;                   ///< gate and up, or the activation's input
  ExpertsSaved experts;               ///< for a layer with experts
  Latents latent;
  Delta delta;
  at::Tensor conv;         ///< a short convolution's products [N, 3 H] (short_conv.h)
  at::Tensor gate;         ///< before its sigmoid (ModelConfig::output_gate), a row per output
  ops::Attended attended;  ///< without attention: only `out`, the output projection's input
  Branch attention, mlp;
  /// For experts in parallel with an MLP: the outputs of both before their norms; the input of the
  /// experts' activation, of the experts, and of the router.
  Branch plain_mlp, expert_mlp;
  at::Tensor experts_inner;
  ops::Normed experts_read, router_read;
  /// For an input of the layer (ModelConfig::layer_input): the sum after the MLP [N, H], and the
  /// input's gate before its activation [N, P]. If undefined, backward recomputes them.
  at::Tensor summed, input_gate;
};

/// One kind of decoder layer (layout::Block). Stateless: one object serves all layers.
class Layer {
 public:
  virtual ~Layer() = default;
  /// x [N, H] → [N, H], or [T, H] if the call has T outputs. If `saved` is null, nothing is saved
  /// (recompute, inference), and the MLP may run in pieces.
  virtual at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x,
                             const LayerCall& call, LayerSaved* saved) const = 0;
  /// dy has the shape of forward's result and is overwritten. Returns the gradient of x [N, H].
  /// Consumes `saved`.
  virtual at::Tensor backward(const zero::UnitParameters& p, at::Tensor dy, const LayerCall& call,
                              LayerSaved saved) const = 0;
  /// Inference with the layer's cache (make_cache()), as ops::attention_cached. Returns all tokens'
  /// outputs.
  virtual at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                    const LayerCall& call, at::Tensor k_cache,
                                    at::Tensor v_cache) const = 0;
  /// Recomputes what forward would have saved, without its result and only as far as backward
  /// needs. In pieces, the MLP and norm1 are left to backward.
  virtual LayerSaved recompute(const zero::UnitParameters& p, const at::Tensor& x,
                               const LayerCall& call) const = 0;
};

std::unique_ptr<Layer> make_layer(const layout::ModelConfig& config);

/// A layer's cache for `rows` rows of up to `length` tokens, fp32: keys and values, each
/// [rows, kv_heads, length, D]. For the delta rule, for any length: the convolution's input of
/// earlier tokens, [rows, kernel - 1, columns], and the states [rows, value heads, key elements,
/// value elements]. For a short convolution: its input of earlier tokens, [rows, kernel - 1, H].
struct LayerCache {
  at::Tensor keys, values;
};
LayerCache make_cache(const layout::ModelConfig& config, int64_t layer, int64_t rows,
                      int64_t length, at::Device place);

// ---- head
struct HeadResult {
  at::Tensor loss_sum;  ///< [] double, on the device: over valid targets
  int64_t targets = 0;  ///< valid targets of this micro-batch
  at::Tensor dx;        ///< in x's shape
};
/// The loss of a target y whose probability is p: -log p, or
struct TokenLoss {
  /// a target is this share of all labels alike, and the rest itself (transformers' LabelSmoother);
  double smoothing = 0;
  /// or -p log p, where the factor p is a constant to the backward pass: dynamic fine-tuning (Wu et al.
  /// 2025). Without smoothing.
  bool dft = false;
};

/// x [N, H], or [T, H] if the last layer computed only the T targets' rows
/// (MicroBatch::last_outputs). Final norm, projection, cross-entropy and all their gradients in one
/// call. It processes the rows of x with a target, a few at a time: the logits of a micro-batch are
/// never whole in memory. A token predicts the next label of its row; the last token of a row has
/// no target. The gradients are those of scale * (mean loss over valid targets). `loss` says
/// which loss. Without valid targets, loss and gradients are 0. If `pieces` cuts the targets, the norm also runs in pieces.
HeadResult head_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch, double scale,
                     const layout::PieceRule& pieces = {}, const TokenLoss& loss = {});
/// The same with a weight per target: the gradients of the sum of weight * loss. `weights`
/// [targets] float, on the device.
HeadResult head_turn_weighted(const zero::UnitParameters& p, const layout::ModelConfig& config,
                              const at::Tensor& x, const MicroBatch& batch,
                              const at::Tensor& weights, const layout::PieceRule& pieces = {});
/// The sums of losses of consecutive parts of the targets, [parts] double, on the device, without
/// gradients. `parts`: number of targets in each part; must sum to all targets (DSJ_CHECK).
at::Tensor head_part_losses(const zero::UnitParameters& p, const layout::ModelConfig& config,
                            const at::Tensor& x, const MicroBatch& batch,
                            std::span<const int64_t> parts, const layout::PieceRule& pieces = {});
/// Only head_turn's loss: the same bits, no gradients, `dx` undefined.
HeadResult head_loss(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const MicroBatch& batch,
                     const layout::PieceRule& pieces = {}, const TokenLoss& loss = {});
/// Logits [rows, V] of rows of x, for inference and tests.
at::Tensor head_logits(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x);

/// For a reward model (ModelConfig::scored): the scores of the micro-batch's targets, [targets]
/// double, on the device. x: as for head_turn().
at::Tensor head_scores(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x, const MicroBatch& batch);
/// The gradients of the sum of slope * score. `slopes` [targets] float, on the device. Returns x's.
at::Tensor head_score_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                           const at::Tensor& x, const MicroBatch& batch, const at::Tensor& slopes);

/// For tests: the number of logit elements held at a time; 0: layout::logit_elements.
void set_logits_limit(int64_t elements);

}  // namespace dsj::models
