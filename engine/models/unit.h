// Units of the model: embedding, decoder layer, head. Each has a forward that keeps what its
// hand-written backward needs, and a backward that writes parameter gradients where ZeRO wants them
// and returns the gradient of its input. Autograd is not used: nothing but a unit's own Saved holds
// activations, and nothing at all holds a weight, so a released parameter is gone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

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
/// [batch, seq] ids → [N, H].
at::Tensor embedding_forward(const zero::UnitParameters& p, const at::Tensor& ids);
/// `dx` [N, H]. In a tied model the head's gradient is already there: it is added to.
void embedding_backward(const zero::UnitParameters& p, const at::Tensor& ids, const at::Tensor& dx);

// ---- decoder layer
struct LayerSaved {
  at::Tensor x, rstd1, h1, qkv, x2, rstd2, h2, gate_up;
  ops::Attended attended;
};

class DecoderLayer {
 public:
  explicit DecoderLayer(const layout::ModelConfig& config) : config_(config) {}
  /// x [N, H] → [N, H]; `saved` nullptr: nothing is kept (recompute, inference).
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x, const ops::RopeTable& rope,
                     int64_t batch, LayerSaved* saved) const;
  /// dy [N, H] becomes the gradient of x, in place. Consumes `saved`.
  void backward(const zero::UnitParameters& p, at::Tensor dy, const ops::RopeTable& rope,
                int64_t batch, LayerSaved saved) const;
  /// Inference with a cache: `x` [batch * new, H] at positions first..; k, v of the cache [batch,
  /// kv_heads, max, D] are written from `first` on.
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& x,
                            const ops::RopeTable& rope, int64_t batch, int64_t first,
                            at::Tensor k_cache, at::Tensor v_cache) const;

 private:
  ops::Attention shape(int64_t rows, int64_t batch) const;
  at::Tensor project_qkv(const zero::UnitParameters& p, const at::Tensor& h) const;
  at::Tensor project_gate_up(const zero::UnitParameters& p, const at::Tensor& h) const;
  void backward_mlp(const zero::UnitParameters& p, at::Tensor dy, LayerSaved& saved) const;
  void backward_attention(const zero::UnitParameters& p, at::Tensor dy, const ops::RopeTable& rope,
                          int64_t batch, LayerSaved& saved) const;
  layout::ModelConfig config_;
};

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
/// Logits [rows, V] of some rows of x, for inference and tests.
at::Tensor head_logits(const zero::UnitParameters& p, const layout::ModelConfig& config,
                       const at::Tensor& x);

/// Logit elements alive at a time in head_turn. A test lowers it.
int64_t logits_limit();
void set_logits_limit(int64_t elements);

}  // namespace dsj::models
