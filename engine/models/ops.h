// The model's operations that are not matrix products: fast kernels on the CPU, ATen elsewhere;
// forward and hand-written backward. ops::reference holds the ATen form of each, the oracle of the
// kernels on any device. Shapes: N = batch x sequence rows, H = hidden, D = head dimension, I =
// intermediate, V = vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dsj::models::ops {

struct Normed {
  at::Tensor y;     ///< [N, H]
  at::Tensor rstd;  ///< [N] fp32
};
/// y = w * (x / sqrt(mean(x^2) + eps)), the quotient rounded to x's type first, as Hugging Face's
/// RMSNorm.
Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);
/// dx [N, H] += gradient; dw [H] (+)= gradient.
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw);

/// cos, sin: [seq, D/2] fp32, rounded to `type` as the modelling code casts them.
struct RopeTable {
  at::Tensor cos, sin;
};
RopeTable rope_table(int64_t first, int64_t seq, int64_t dim, double theta,
                     const at::TensorOptions& options);
/// Rotates the first `heads` heads of each row of x [N, >= heads * D] in place; row n is at
/// position n mod seq.
void rope(at::Tensor x, const RopeTable& table, int64_t heads, bool inverse);

/// [N, 2I] (gate, up) → [N, I]: silu(gate) * up.
at::Tensor swiglu(const at::Tensor& gate_up);
/// gate_up becomes its own gradient.
void swiglu_backward(const at::Tensor& da, at::Tensor gate_up);

/// logits [n, V] become scale * (softmax - one hot(labels)); labels [n] in [0, V). Returns the
/// summed loss.
double cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale);

/// Causal self-attention over qkv [N, (heads + 2 kv_heads) D], rows of `batch` sequences.
struct Attention {
  int64_t batch = 1, seq = 1, heads = 1, kv_heads = 1, dim = 1;
};
struct Attended {
  at::Tensor out;                         ///< [N, heads * D]
  at::Tensor logsumexp;                   ///< what backward needs
  at::Tensor philox_seed, philox_offset;  ///< CUDA: the kernel's generator state (no dropout here)
};
Attended attention(const at::Tensor& qkv, const Attention& shape);
/// Returns the gradient of qkv, in its shape.
at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv,
                              const Attended& attended, const Attention& shape);

namespace reference {
Normed rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w,
                       const at::Tensor& rstd, at::Tensor dx, at::Tensor dw, bool accumulate_dw);
void rope(at::Tensor x, const RopeTable& table, int64_t heads, bool inverse);
at::Tensor swiglu(const at::Tensor& gate_up);
void swiglu_backward(const at::Tensor& da, at::Tensor gate_up);
double cross_entropy(at::Tensor logits, const at::Tensor& labels, double scale);
}  // namespace reference

}  // namespace dsj::models::ops
