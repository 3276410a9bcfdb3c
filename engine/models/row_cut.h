// Rows cut over ranks (Ulysses, sequence_parallel_size): the ranks of a group have neighbouring parts of
// a micro-batch's tokens. Everything but attention treats tokens one by one. Around attention heads and
// tokens change places by an all_to_all: each rank then has all tokens of some heads. N: tokens of one
// rank; W: ranks; `heads` and `kv_heads` are the model's, and W divides `heads`. Where W does not divide
// kv_heads, ranks whose query heads share a key head have copies of it.
// Tested by: tests/engine/train/sequence_parallel_test.cc
#pragma once

#include "engine/comm/collectives.h"
#include "engine/models/ops.h"

namespace dsj::models {

struct LayerCall;

/// Where a call's tokens are a part of its rows.
struct RowCut {
  comm::Collectives* ranks = nullptr;  ///< in the order of their parts
  const RowBounds* rows = nullptr;     ///< of all parts' tokens
};

/// ops::attention() of a layer's rows, cut or not. `qkv` [N, (heads + 2 kv_heads) D] becomes what
/// backward wants: of cut rows all tokens of this rank's heads. Collective over the cut's ranks.
ops::Attended attention(at::Tensor& qkv, const LayerCall& call, const ops::Attention& shape);
/// Its backward: dout [N, heads D], `qkv` as attention() left it. Returns the gradient of the qkv that
/// attention() was given. Collective over the cut's ranks.
at::Tensor attention_backward(const at::Tensor& dout, at::Tensor qkv, ops::Attended attended,
                              const LayerCall& call, const ops::Attention& shape);

}  // namespace dsj::models
