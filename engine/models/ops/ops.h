// The model's operations other than matrix products, forward and hand-written backward, on any
// device: each allocates its results and calls the device's kernels (engine/device/device.h).
// Nothing waits for the device. Shapes: N = tokens of all rows, H = hidden size, D = head
// dimension, I = intermediate size, V = vocabulary. Floating-point tensors have the compute type
// (fp32, bf16 or fp16) unless a comment says otherwise. They are contiguous, or a column slice of a
// contiguous tensor if a comment says [N, >= ...].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/models/ops/row_bounds.h"
#include "job/layout/model_config.h"

namespace dsj::models::ops {

struct Normed {
  at::Tensor y;           ///< [N, H]
  at::Tensor rstd, mean;  ///< [N] fp32; an RMS norm has no mean
};
/// y = w * (x / sqrt(mean(x^2) + eps)). The quotient is rounded to x's type first, as in Hugging
/// Face's RMSNorm.
Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);
/// dx [N, H] += gradient; dw [H] (+)= gradient, skipped if undefined (frozen).
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw);

/// y = (x - mean) / sqrt(var + eps) * w + b, rounded once. Keeps mean and rstd.
Normed layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps);
/// dx [N, H] += gradient; dw, db [H] (+)= gradients, skipped if undefined (frozen).
void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const Normed& normed, at::Tensor dx, at::Tensor dw, at::Tensor db,
                         bool accumulate);

/// RMS norm of each of the first `heads` heads in every row of x [N, >= heads * D], in place. w
/// [D]. Returns rstd [N, heads], fp32.
at::Tensor head_norm(at::Tensor x, const at::Tensor& w, int64_t heads, double eps);
/// dy (the same heads) becomes the gradient of head_norm's input x; dw [D] (+)= gradient.
void head_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                        const at::Tensor& rstd, at::Tensor dw, bool accumulate_dw);

/// cos, sin: [length, R/2] fp32 for the R rotated elements of a head, rounded to the type of
/// `options` as in Hugging Face's code.
struct RopeTable {
  at::Tensor cos, sin;
  bool in_pairs = false;  ///< rotates elements 2i and 2i+1 together, not i and i + R/2
};
/// For positions 0 to length - 1. Dynamic scaling and longrope use `length` as the sequence length:
/// frequencies depend only on this call, not on longer sequences seen before.
RopeTable rope_table(const layout::RopeConfig& config, int64_t dim, int64_t length,
                     const at::TensorOptions& options);
/// The table of a run, for rows of any length: it grows to the longest row so far; shorter rows use
/// its beginning. One thread.
class RopeTables {
 public:
  RopeTables(const layout::RopeConfig& config, int64_t dim, const at::TensorOptions& options,
             bool in_pairs = false)
      : config_(config), dim_(dim), options_(options), in_pairs_(in_pairs) {}
  /// A table that has at least the positions below `length`, as rope_table(length). Valid until the
  /// next call.
  const RopeTable& below(int64_t length);

 private:
  const layout::RopeConfig config_;
  const int64_t dim_;
  const at::TensorOptions options_;
  const bool in_pairs_;
  RopeTable table_;
  int64_t scaled_for_ = 0;  ///< length for which table_'s frequencies are scaled
};
/// A model's tables; layers with a window may have their own. One thread.
class Ropes {
 public:
  Ropes(const layout::ModelConfig& model, const at::TensorOptions& options);
  /// A layer's table for positions below `length`; null if the layer rotates nothing. Valid until
  /// the next call for a longer row.
  const RopeTable* of(int64_t layer, int64_t length);

 private:
  const layout::ModelConfig model_;
  RopeTables all_;
  std::optional<RopeTables> local_;
};
/// Rotates the first R elements of each of the first `heads` heads of `dim` elements in each row of
/// x [N, >= heads * dim], in place. positions [N] int64: of each row, all below the table's length.
void rope(at::Tensor x, const RopeTable& table, const at::Tensor& positions, int64_t heads,
          int64_t dim, bool inverse);

/// Gated: [N, 2I] (gate, up) → act(gate) * up [N, I]; else [N, I] → act.
at::Tensor activated(const at::Tensor& inner, layout::Activation activation, bool gated);
/// inner becomes its own gradient.
void activated_backward(const at::Tensor& da, at::Tensor inner, layout::Activation activation,
                        bool gated);

/// [N, 2I] (gate, up) → [N, I]: silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate_up);
/// gate_up becomes its own gradient.
void swiglu_backward(const at::Tensor& da, at::Tensor gate_up);

/// transformers' NewGELUActivation: the tanh form, rounding after each operation.
at::Tensor gelu_new(const at::Tensor& x);
/// x becomes its own gradient.
void gelu_new_backward(const at::Tensor& dy, at::Tensor x);

/// logits [n, V] become scale * (softmax - one hot(labels)); labels [n] int64, in [0, V). Adds the
/// sum of the losses to loss [] (double).
void cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale, at::Tensor loss);

/// out[index[n]] += x[n] for each row n of x [N, H]; index [N] int64. Rounds once.
void scatter_rows(const at::Tensor& x, const at::Tensor& index, at::Tensor out);

/// x *= mask / (1 - p), in place. Forward and backward are the same call: the mask depends on key,
/// shape and kind of device only. Does nothing if p is 0.
struct Dropout {
  double p = 0;
  uint64_t key = 0;
};
void dropout(at::Tensor x, const Dropout& dropout);

/// Causal self-attention over qkv [N, (heads + 2 kv_heads) D], within each row of tokens.
struct Attention {
  int64_t heads = 1, kv_heads = 1, dim = 1;
  double scale = 1;    ///< on the scores
  int64_t window = 0;  ///< number of visible tokens, including itself; 0: all earlier
  double cap = 0;      ///< above 0: scores are cap * tanh(scores / cap)
  Dropout dropout;     ///< on the probabilities
  /// [heads] fp32: a score per query head in addition to the keys', whose probability is dropped;
  /// may be undefined. Backward adds to its gradient dsinks [heads] fp32 if that is defined.
  at::Tensor sinks = {}, dsinks = {};
  bool plain() const { return dropout.p > 0 || cap > 0; }
  /// Queries per block if a mask or the scores are materialised; 0: layout::query_block decides.
  int64_t queries = 0;
};
struct Attended {
  /// A kernel's state for its backward.
  struct Sums {
    at::Tensor logsumexp;
    at::Tensor philox_seed, philox_offset;  ///< CUDA: the kernel's generator state
  };
  at::Tensor out;          ///< [N, heads * D]
  std::vector<Sums> sums;  ///< per kernel call; empty in the plain form
  /// For rows cut over ranks (row_cut.h): the result for this rank's heads and all tokens.
  at::Tensor of_heads = {};
};
/// One kernel call if the device takes concatenated rows, else one call per run of `rows` (adjacent
/// rows of equal length). A long row with a window or dropout takes one call per block of its
/// queries (layout::query_block), so that no memory is quadratic in a row's length.
Attended attention(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape);
/// Returns the gradient of qkv, in its shape; usually overwrites qkv.
at::Tensor attention_backward(const at::Tensor& dout, at::Tensor qkv, const Attended& attended,
                              const RowBounds& rows, const Attention& shape);

/// Inference with a cache [rows, kv_heads, max, D]: writes the keys and values of qkv at the rows'
/// positions. Each token sees the cache up to its own position. Either all rows of a call begin at
/// position 0 or none does.
at::Tensor attention_cached(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape,
                            at::Tensor k_cache, at::Tensor v_cache);

}  // namespace dsj::models::ops
