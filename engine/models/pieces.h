// A layer's MLP piece by piece (job/layout/row_pieces.h): only where nothing of it is kept for
// backward, which is where there is no backward, or where backward computes it again. So pieces
// cost no product more than whole rows do.
// Tested by: tests/engine/train/long_rows_test.cc
#pragma once

#include <ATen/ATen.h>

#include "engine/models/unit.h"

namespace dsj::models {

/// The call of a piece of its rows: with its own draws of dropout.
inline LayerCall piece_call(const LayerCall& call, const layout::RowPiece& piece) {
  constexpr int64_t kFirstSite = int64_t{1} << 32;  // a unit's other sites lie below
  LayerCall one = call;
  if (one.dropout_key) one.dropout_key = dropout_key(*one.dropout_key, kFirstSite + piece.first);
  return one;
}

/// f(rows of x2, their call) → their outputs, for all rows of x2 [N, H]: [N, H].
template <typename F>
at::Tensor forward_in_pieces(const at::Tensor& x2, const LayerCall& call, F f) {
  at::Tensor y = at::empty_like(x2);
  for (const auto& piece : call.pieces.of(x2.size(0)))
    y.narrow(0, piece.first, piece.count)
        .copy_(f(x2.narrow(0, piece.first, piece.count), piece_call(call, piece)));
  return y;
}

/// f(unit whose gradients are those of the piece, rows of x2, rows of dy, their call) for all rows.
/// f turns its rows of dy [N, H] into the gradient of its rows of x2.
template <typename F>
void backward_in_pieces(const zero::UnitParameters& p, const at::Tensor& x2, const at::Tensor& dy,
                        const LayerCall& call, F f) {
  zero::PieceSums sums;
  const zero::UnitParameters adding = p.adding_to(sums);
  for (const auto& piece : call.pieces.of(x2.size(0))) {
    f(adding, x2.narrow(0, piece.first, piece.count), dy.narrow(0, piece.first, piece.count),
      piece_call(call, piece));
    sums.add();
  }
}

}  // namespace dsj::models
