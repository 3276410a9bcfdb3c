// Attention on accelerators over rows laid end to end: libtorch's flash kernels take where each row
// begins, and heads that share keys and values. So a micro-batch is one call, whatever its rows,
// and nothing is copied on the way in. Which calls can take them is decided here.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <tuple>

namespace dsj::device {

/// Which form of attention a call takes, and why, in words for the log.
struct AttentionChoice {
  bool by_rows = false;  ///< false: Device::attention(), a call for each run of rows of one length
  std::string because;
};
/// `capability`: the GPU's compute capability, 90 is 9.0; 0: not known. Pure. The limits are those
/// of the kernels in libtorch 2.11.
AttentionChoice choose_attention(at::ScalarType type, int64_t dim, int capability);

/// Causal attention within rows. Shapes: N tokens of all rows.
struct RowAttention {
  at::Tensor qkv;  ///< [N, (heads + 2 kv_heads) dim], fp16 or bf16
  int64_t heads = 1, kv_heads = 1, dim = 1;
  at::Tensor starts;    ///< [rows + 1] int32, on qkv's device: each row's first token, then N
  int64_t longest = 0;  ///< tokens of the longest row
  double scale = 1;     ///< on the scores
  int64_t window = 0;   ///< how many tokens a token sees, itself included; 0: all before it
};
/// [N, heads, dim], [N, kv_heads, dim] twice: views of in.qkv.
struct RowHeads {
  at::Tensor q, k, v;
};
RowHeads heads_of(const RowAttention& in);
/// What the backward needs of the forward.
struct RowAttended {
  at::Tensor out;  ///< [N, heads * dim]
  at::Tensor logsumexp, generator_state, unused;
};
RowAttended attention_by_rows(const RowAttention& in);
/// dout [N, heads * dim]. Returns the gradient of qkv.
at::Tensor attention_by_rows_backward(const at::Tensor& dout, const RowAttention& in,
                                      const RowAttended& attended);

}  // namespace dsj::device
