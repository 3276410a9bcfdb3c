// The model's operations other than matrix products, forward and hand-written backward, on whatever
// device their tensors lie: each allocates its results and calls the device's kernels
// (engine/device/device.h). Nothing waits for the device. Shapes: N = tokens of all rows, H =
// hidden size, D = head dimension, I = intermediate size, V = vocabulary. Floating tensors have the
// compute type, fp32, bf16 or fp16, unless a comment says otherwise. They are contiguous, or a
// column slice of such a tensor where a comment says [N, >= ...].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/models/row_bounds.h"
#include "job/layout/model_config.h"

namespace dsj::models::ops {

struct Normed {
  at::Tensor y;           ///< [N, H]
  at::Tensor rstd, mean;  ///< [N] fp32; no mean in an RMS norm
};
/// y = w * (x / sqrt(mean(x^2) + eps)). The quotient is rounded to x's type first, as in Hugging
/// Face's RMSNorm.
Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);
/// dx [N, H] += gradient; dw [H] (+)= gradient. An undefined dw is left out (frozen).
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw);

/// y = (x - mean) / sqrt(var + eps) * w + b, rounded once. Keeps mean and rstd.
Normed layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps);
/// dx [N, H] += gradient; dw, db [H] (+)= gradients. Undefined ones are left out (frozen).
void layer_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                         const Normed& normed, at::Tensor dx, at::Tensor dw, at::Tensor db,
                         bool accumulate);

/// RMS norm of each of the first `heads` heads in every row of x [N, >= heads * D], in place; w
/// [D]. Returns rstd [N, heads], fp32.
at::Tensor head_norm(at::Tensor x, const at::Tensor& w, int64_t heads, double eps);
/// dy (the same heads) becomes the gradient of head_norm's input x; dw [D] (+)= gradient.
void head_norm_backward(at::Tensor dy, const at::Tensor& x, const at::Tensor& w,
                        const at::Tensor& rstd, at::Tensor dw, bool accumulate_dw);

/// cos, sin: [length, R/2] fp32 for the R elements of a head that are rotated, rounded to the type
/// of `options` as Hugging Face's code casts them.
struct RopeTable {
  at::Tensor cos, sin;
  bool in_pairs = false;  ///< elements 2i and 2i+1 turn together, not i and i + R/2
};
/// For positions 0 to length - 1. Dynamic scaling and longrope take `length` as the sequence's:
/// frequencies depend on this call alone, not on longer sequences seen before.
RopeTable rope_table(const layout::RopeConfig& config, int64_t dim, int64_t length,
                     const at::TensorOptions& options);
/// The one table of a run, for rows of any length: the longest so far, of which shorter rows use
/// the beginning. One thread.
class RopeTables {
 public:
  RopeTables(const layout::RopeConfig& config, int64_t dim, const at::TensorOptions& options,
             bool in_pairs = false)
      : config_(config), dim_(dim), options_(options), in_pairs_(in_pairs) {}
  /// Holds at least the positions below `length`, as rope_table(length) has them. Valid until the
  /// next call.
  const RopeTable& below(int64_t length);

 private:
  const layout::RopeConfig config_;
  const int64_t dim_;
  const at::TensorOptions options_;
  const bool in_pairs_;
  RopeTable table_;
  int64_t scaled_for_ = 0;  ///< which frequencies table_ has, where they depend on the length
};
/// A model's tables: layers with a window may have their own. One thread.
class Ropes {
 public:
  Ropes(const layout::ModelConfig& model, const at::TensorOptions& options);
  /// Of a layer, for positions below `length`. Null: the layer rotates nothing. Valid until the next
  /// call for a longer row.
  const RopeTable* of(int64_t layer, int64_t length);

 private:
  const layout::ModelConfig model_;
  RopeTables all_;
  std::optional<RopeTables> local_;
};
/// Rotates the first `heads` heads of `dim` elements in each row of x [N, >= heads * dim], in place:
/// of each the first R. Row n is at positions[n], positions [N] int64, all below the table's length.
void rope(at::Tensor x, const RopeTable& table, const at::Tensor& positions, int64_t heads,
          int64_t dim, bool inverse);

/// A gated MLP's [N, 2I] (gate, up) → act(gate) * up [N, I]; else [N, I] → act.
at::Tensor activated(const at::Tensor& inner, layout::Activation activation, bool gated);
/// inner becomes its own gradient.
void activated_backward(const at::Tensor& da, at::Tensor inner, layout::Activation activation,
                        bool gated);

/// [N, 2I] (gate, up) → [N, I]: silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate_up);
/// gate_up becomes its own gradient.
void swiglu_backward(const at::Tensor& da, at::Tensor gate_up);

/// transformers' NewGELUActivation: the tanh form, rounded after each operation.
at::Tensor gelu_new(const at::Tensor& x);
/// x becomes its own gradient.
void gelu_new_backward(const at::Tensor& dy, at::Tensor x);

/// logits [n, V] become scale * (softmax - one hot(labels)); labels [n] int64, in [0, V). Adds the
/// sum of the losses to loss [] (double).
void cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale, at::Tensor loss);

/// out[index[n]] += x[n] for each row n of x [N, H]; index [N] int64. Rounds once.
void scatter_rows(const at::Tensor& x, const at::Tensor& index, at::Tensor out);

/// x *= mask / (1 - p), in place. Forward and backward are the same call: the mask is a function of
/// key and shape on one kind of device. p 0: nothing happens.
struct Dropout {
  double p = 0;
  uint64_t key = 0;
};
void dropout(at::Tensor x, const Dropout& dropout);

/// Causal self-attention over qkv [N, (heads + 2 kv_heads) D], within each row of tokens.
struct Attention {
  int64_t heads = 1, kv_heads = 1, dim = 1;
  double scale = 1;    ///< on the scores
  int64_t window = 0;  ///< how many tokens a token sees, itself included; 0: all before it
  double cap = 0;      ///< above 0: scores are cap * tanh(scores / cap)
  Dropout dropout;     ///< on the probabilities
  /// [heads] fp32: a score of each query head beside the keys', whose probability is lost. Undefined:
  /// none. Backward adds to their gradient, dsinks [heads] fp32; undefined: nobody asks.
  at::Tensor sinks = {}, dsinks = {};
  bool plain() const { return dropout.p > 0 || cap > 0; }
  /// Queries at a time where a mask or the scores are held; 0: layout::query_block decides.
  int64_t queries = 0;
};
struct Attended {
  /// What a kernel keeps for its backward.
  struct Sums {
    at::Tensor logsumexp;
    at::Tensor philox_seed, philox_offset;  ///< CUDA: the kernel's generator state
  };
  at::Tensor out;          ///< [N, heads * D]
  std::vector<Sums> sums;  ///< of each call; empty in the plain form
  /// Of rows that are cut over ranks (row_cut.h): what attention gave of this rank's heads, all tokens.
  at::Tensor of_heads = {};
};
/// One call of the device's kernel if it takes rows laid end to end, else one for each run of
/// `rows`: rows of one length that are neighbours. A long row with a window, or with dropout, takes
/// a call for each block of its queries (layout::query_block). So nothing that is held is quadratic
/// in a row's length.
Attended attention(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape);
/// Returns the gradient of qkv, in its shape; mostly in its memory: qkv is gone.
at::Tensor attention_backward(const at::Tensor& dout, at::Tensor qkv, const Attended& attended,
                              const RowBounds& rows, const Attention& shape);

/// Inference with a cache [rows, kv_heads, max, D]: writes the keys and values of qkv at the rows'
/// positions; each token sees the cache up to its own. All rows of a call begin at position 0, or
/// none does.
at::Tensor attention_cached(const at::Tensor& qkv, const RowBounds& rows, const Attention& shape,
                            at::Tensor k_cache, at::Tensor v_cache);

}  // namespace dsj::models::ops
