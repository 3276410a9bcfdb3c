// Rows cut over ranks (Ulysses, sequence_parallel_size): the ranks of a group have adjacent parts
// of a micro-batch's tokens. All operations but attention treat tokens independently. Before
// attention an all_to_all exchanges tokens for heads, so that each rank has all tokens of some
// heads; after it, the reverse. N: tokens of one rank; W: ranks; `heads` and `kv_heads` are the
// model's, and W divides `heads`. If W does not divide kv_heads, ranks whose query heads share a
// key head have copies of it.
// Tested by: tests/engine/train/sequence_parallel_test.cc
#pragma once

#include "engine/comm/collectives.h"
#include "engine/models/ops/ops.h"

namespace dsj::models {

struct LayerCall;

/// Describes a call whose tokens are a part of its rows.
struct RowCut {
  comm::Collectives* ranks = nullptr;  ///< in the order of their parts
  const RowBounds* rows = nullptr;     ///< of all parts' tokens
};

/// ops::attention() for a layer's rows, cut or not. `qkv` [N, (heads + 2 kv_heads) D] is replaced
/// by what backward needs: for cut rows, all tokens of this rank's heads. Collective over its
/// ranks.
ops::Attended attention(at::Tensor& qkv, const LayerCall& call, const ops::Attention& shape);
/// Its backward: dout [N, heads D], `qkv` as attention() left it. Returns the gradient of
/// attention()'s original qkv. Collective over its ranks.
at::Tensor attention_backward(const at::Tensor& dout, at::Tensor qkv, ops::Attended attended,
                              const LayerCall& call, const ops::Attention& shape);

}  // namespace dsj::models
