// Units of the model: embedding, decoder layer, head. Each has a forward that keeps what its
// hand-written backward needs, and a backward that writes parameter gradients where ZeRO wants them
// and returns the gradient of its input. Autograd is not used: nothing but a unit's own Saved holds
// activations, and nothing at all holds a weight, so a released parameter is gone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "common/layout/model_config.h"
#include "engine/models/ops.h"
#include "engine/zero/model_state.h"

namespace dsj::models {

/// One micro-batch on the device. Rows are sequences, padded on the right: under a causal mask no
/// token sees padding.
struct MicroBatch {
  at::Tensor input_ids;  ///< [batch, seq] int64
  at::Tensor labels;     ///< [batch, seq] int64, aligned with input_ids; -100: no target
};

// ---- embedding
struct EmbeddingCall {
  int64_t first = 0;  ///< position of the first token, where positions are learned
  std::optional<uint64_t> dropout_key;  ///< as LayerCall's
};
/// [batch, seq] ids → [N, H].
at::Tensor embedding_forward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                             const at::Tensor& ids, const EmbeddingCall& call);
/// `dx` [N, H], overwritten by dropout. In a tied model the head's gradient is already there: it is
/// added to.
void embedding_backward(const zero::UnitParameters& p, const layout::ModelConfig& config,
                        const at::Tensor& ids, const at::Tensor& dx, const EmbeddingCall& call);

/// Mixes one more number into a key: dropout is keyed by seed, step, micro-step, rank and unit, so
/// that recompute and resume drop the same elements.
uint64_t dropout_key(uint64_t key, int64_t part);

// ---- decoder layers
/// What a layer is told besides its parameters and its input.
struct LayerCall {
  int64_t layer = 0;                     ///< 0 is the first
  int64_t batch = 1;                     ///< sequences; x has batch x seq rows
  const ops::RopeTable* rope = nullptr;  ///< of this sequence length; none where positions are
                                         ///< learned
  /// Of this unit in this micro-step of this rank; nullopt: nothing is dropped (inference).
  std::optional<uint64_t> dropout_key;
};

/// What a layer's backward needs of its forward; a layer fills what it uses.
struct LayerSaved {
  at::Tensor x, x2;           ///< [N, H]: input, and after the attention
  ops::Normed norm1, norm2;   ///< of both
  at::Tensor qkv;             ///< rotated
  at::Tensor qk;              ///< queries and keys before their own norm
  at::Tensor q_rstd, k_rstd;  ///< of that norm
  at::Tensor inner;           ///< gate and up, or what the activation reads
  ops::Attended attended;
};

/// One shape of decoder layer (layout::Block). Stateless: one object serves all layers.
class Layer {
 public:
  virtual ~Layer() = default;
  /// x [N, H] → [N, H]; `saved` nullptr: nothing is kept (recompute).
  virtual at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x,
                             const LayerCall& call, LayerSaved* saved) const = 0;
  /// dy [N, H] becomes the gradient of x, in place. Consumes `saved`.
  virtual void backward(const zero::UnitParameters& p, at::Tensor dy, const LayerCall& call,
                        LayerSaved saved) const = 0;
  /// Inference with a cache: as ops::attention_cached; x holds positions first...
  virtual at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                                    const LayerCall& call, int64_t first, at::Tensor k_cache,
                                    at::Tensor v_cache) const = 0;
};

std::unique_ptr<Layer> make_layer(const layout::ModelConfig& config);

// ---- head
struct HeadResult {
  double loss_sum = 0;  ///< over valid targets
  int64_t targets = 0;  ///< valid targets of this micro-batch
  at::Tensor dx;        ///< [N, H]
};
/// Final norm, projection, cross-entropy and their gradients in one visit, over the rows that have
/// a target only, a few rows of logits at a time: the logits of a micro-batch never exist whole.
/// The loss is the mean over valid targets, its gradient is multiplied by `scale`. No valid target:
/// loss 0, gradients 0.
HeadResult head_turn(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const at::Tensor& labels, double scale);
/// The loss of head_turn alone: the same bits, no gradient, and `dx` is undefined.
HeadResult head_loss(const zero::UnitParameters& p, const layout::ModelConfig& config,
                     const at::Tensor& x, const at::Tensor& labels);
/// Logits [rows, V] of some rows of x, for inference and tests.
at::Tensor head_logits(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x);

/// Logit elements alive at a time in head_turn. A test lowers it.
int64_t logits_limit();
void set_logits_limit(int64_t elements);

}  // namespace dsj::models
