// Attention on accelerators over concatenated rows. libtorch's flash kernels take the bounds of
// rows, and key and value heads that several query heads share. So a micro-batch is one call for
// any rows, and nothing is copied before it. This file decides which calls can use them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>

namespace dsj::device {

/// The form of attention for a call, and the reason, for the log.
struct AttentionChoice {
  bool by_rows = false;  ///< if false: Device::attention(), a call per run of rows of equal length
  std::string because;
};
/// `capability`: the GPU's compute capability, 90 for 9.0, or 0 if unknown. Pure. The limits are
/// those of the kernels in libtorch 2.11.
AttentionChoice choose_attention(at::ScalarType type, int64_t dim, int capability);

/// Causal attention within rows. Shapes: N tokens of all rows.
struct RowAttention {
  at::Tensor qkv;  ///< [N, (heads + 2 kv_heads) dim], fp16 or bf16
  int64_t heads = 1, kv_heads = 1, dim = 1;
  at::Tensor starts;    ///< [rows + 1] int32, on qkv's device: each row's first token, then N
  int64_t longest = 0;  ///< tokens of the longest row
  double scale = 1;     ///< on the scores
  int64_t window = 0;   ///< number of visible tokens, including itself; 0: all earlier
};
/// [N, heads, dim], [N, kv_heads, dim] twice: views of in.qkv.
struct RowHeads {
  at::Tensor q, k, v;
};
RowHeads heads_of(const RowAttention& in);
/// The forward's results that the backward needs.
struct RowAttended {
  at::Tensor out;  ///< [N, heads * dim]
  at::Tensor logsumexp, generator_state, unused;
};
RowAttended attention_by_rows(const RowAttention& in);
/// dout [N, heads * dim]. Returns the gradient of qkv.
at::Tensor attention_by_rows_backward(const at::Tensor& dout, const RowAttention& in,
                                      const RowAttended& attended);

}  // namespace dsj::device
