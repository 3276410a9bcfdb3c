// What the mixers with a state per row share: the gated delta rule (delta.h) and Mamba 2 (mamba.h).
// Internal to both.
// Tested by: tests/engine/models/delta_test.cc
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <span>
#include <utility>

#include "job/layout/shape/model_shape.h"

namespace dsj::models::rule {

inline at::Tensor wide(const at::Tensor& x) {
  return x.to(at::kFloat);
}

/// The columns of all products: those of the delta rule are in the order queries, keys, values,
/// strengths, decays, gates; those of Mamba 2 gates, values, keys, queries, steps (here: decays).
struct Columns {
  at::Tensor conv, queries, keys, values, strengths, decays, gates;
  Columns(const at::Tensor& products, const layout::DeltaConfig& c) {
    int64_t next = 0;
    const auto take = [&](int64_t width) {
      return products.narrow(1, std::exchange(next, next + width), width);
    };
    if (c.mamba) gates = take(c.value_size());
    conv = products.narrow(1, next, c.conv_size());
    if (c.mamba) {
      values = take(c.value_size());
      keys = take(c.key_size());
      queries = take(c.key_size());
      decays = take(c.value_heads);
      return;
    }
    queries = take(c.key_size());
    keys = take(c.key_size());
    values = take(c.value_size());
    strengths = take(c.value_heads);
    decays = take(c.value_heads);
    gates = take(c.value_size());
  }
  at::Tensor by_key_head(const at::Tensor& columns, int64_t heads) const {
    return columns.unflatten(1, {heads, columns.size(1) / heads});
  }
};

/// [C T, heads D] → [C, heads, T, D]; and back, contiguous.
inline at::Tensor to_heads(const at::Tensor& x, int64_t chunks, int64_t heads) {
  return x.view({chunks, x.size(0) / chunks, heads, x.size(1) / heads}).transpose(1, 2);
}
inline at::Tensor from_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1) * x.size(3)});
}

/// Each key head serves `times` adjacent value heads.
inline at::Tensor repeat_heads(const at::Tensor& x, int64_t times) {
  if (times == 1) return x;
  return x.unsqueeze(2)
      .expand({x.size(0), x.size(1), times, x.size(2), x.size(3)})
      .reshape({x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}
inline at::Tensor sum_heads(const at::Tensor& x, int64_t times) {
  return times == 1 ? x : x.unflatten(1, {x.size(1) / times, times}).sum(2);
}

/// The rule's result [C, H, T, D] for the piece's tokens, [n, H, D].
inline at::Tensor rows_of(const at::Tensor& out, const at::Tensor& places, at::ScalarType type) {
  const at::Tensor all = out.transpose(1, 2).flatten(0, 1);
  return all.index_select(0, places).to(type);
}

/// [n, H] of the piece's tokens → [C, H, T], with 0 for the padding tokens of a chunk; and back.
inline at::Tensor into_chunks(const at::Tensor& x, const at::Tensor& places, int64_t chunks,
                              int64_t chunk) {
  const at::Tensor all = at::zeros({chunks * chunk, x.size(1)}, x.options());
  all.index_copy_(0, places, x);
  return all.view({chunks, chunk, -1}).transpose(1, 2).contiguous();
}
inline at::Tensor of_tokens(const at::Tensor& x, const at::Tensor& places) {
  return x.transpose(1, 2).reshape({x.size(0) * x.size(2), x.size(1)}).index_select(0, places);
}

/// The small parameters, converted for their use.
struct Weights {
  at::Tensor conv;            ///< [columns, kernel] fp32, rounded to the products' type
  at::Tensor rates, shifts;   ///< [heads] fp32: exp(A_log), dt_bias
  at::Tensor norm;            ///< [D]; Mamba 2: [value columns] fp32
  at::Tensor conv_bias = {};  ///< [columns] fp32, rounded as conv; Mamba 2, if it has one
  at::Tensor skips = {};      ///< [heads] fp32: Mamba 2's D
};

/// The indices of a piece's tokens. A chunk's convolution also reads the `halo` tokens before it.
struct Piece {
  std::span<const int64_t> rows;  ///< per step
  int64_t chunks = 0, chunk = 0;
  at::Tensor tokens, places;  ///< [n] int64: a token, and its index in [C T]
  /// The same for [C (halo + T)], including the row's tokens before each chunk.
  at::Tensor seen, seen_places;
};

/// Gradients of the small parameters, fp32.
struct Sums {
  at::Tensor conv, rates, shifts, norm, conv_bias, skips;
};

/// The convolution's input and result for a piece.
struct Convolved {
  at::Tensor seen;   ///< [C, halo + T, columns]
  at::Tensor mixed;  ///< [C T, columns], before SiLU
};

}  // namespace dsj::models::rule
