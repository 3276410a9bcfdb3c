// The model's operations other than matrix products, forward and hand-written backward, on whatever
// device their tensors lie: each allocates its results and calls the device's kernels
// (engine/device/device.h). Nothing waits for the device. Shapes: N = batch x sequence rows, H =
// hidden size, D = head dimension, I = intermediate size, V = vocabulary. Floating tensors have the
// compute type, fp32, bf16 or fp16, unless a comment says otherwise. They are contiguous, or a
// column slice of such a tensor where a comment says [N, >= ...].
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

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

/// cos, sin: [seq, D/2] fp32, rounded to the type of `options` as Hugging Face's code casts them.
struct RopeTable {
  at::Tensor cos, sin;
};
/// For positions first to first + seq - 1. Dynamic scaling takes first + seq as the sequence's
/// length: frequencies depend on this call alone, not on longer sequences seen before.
RopeTable rope_table(const layout::RopeConfig& config, int64_t dim, int64_t first, int64_t seq,
                     const at::TensorOptions& options);
/// Rotates the first `heads` heads of each row of x [N, >= heads * D], in place. Row n is at
/// position n mod seq.
void rope(at::Tensor x, const RopeTable& table, int64_t heads, bool inverse);

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

/// out[index[n]] += x[n] for each row n of x [N, H]; index [N] int64.
void scatter_rows(const at::Tensor& x, const at::Tensor& index, at::Tensor out);

/// x *= mask / (1 - p), in place. Forward and backward are the same call: the mask is a function of
/// key and shape on one kind of device. p 0: nothing happens.
struct Dropout {
  double p = 0;
  uint64_t key = 0;
};
void dropout(at::Tensor x, const Dropout& dropout);

/// Causal self-attention over qkv [N, (heads + 2 kv_heads) D]; the rows are `batch` sequences.
struct Attention {
  int64_t batch = 1, seq = 1, heads = 1, kv_heads = 1, dim = 1;
  double scale = 1;    ///< on the scores
  int64_t window = 0;  ///< how many tokens a token sees, itself included; 0: all before it
  Dropout dropout;     ///< on the probabilities
};
struct Attended {
  at::Tensor out;                         ///< [N, heads * D]
  at::Tensor logsumexp;                   ///< for backward; undefined with dropout
  at::Tensor philox_seed, philox_offset;  ///< CUDA: the kernel's generator state
};
Attended attention(const at::Tensor& qkv, const Attention& shape);
/// Returns the gradient of qkv, in its shape.
at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const Attended& attended, const Attention& shape);

/// Inference with a cache [batch, kv_heads, max, D]: writes the keys and values of qkv from
/// position `first` on. The first call has a whole prompt (first 0), later calls one token each.
at::Tensor attention_cached(const at::Tensor& qkv, const Attention& shape, int64_t first,
                            at::Tensor k_cache, at::Tensor v_cache);

}  // namespace dsj::models::ops
