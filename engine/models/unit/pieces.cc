#include "engine/models/unit/pieces.h"

#include <ATen/ATen.h>

#include <utility>

namespace dsj::models {

std::optional<uint64_t> piece_key(std::optional<uint64_t> key, const layout::RowPiece& piece) {
  constexpr int64_t kFirstSite = int64_t{1} << 32;  // all other sites of a unit are smaller
  if (key) key = dropout_key(*key, kFirstSite + piece.first);
  return key;
}

namespace {

LayerCall piece_call(const LayerCall& call, const layout::RowPiece& piece) {
  LayerCall one = call;
  one.first_output = piece.first;
  one.dropout_key = piece_key(call.dropout_key, piece);
  return one;
}

}  // namespace

at::Tensor LayerInPieces::forward(const zero::UnitParameters& p, const at::Tensor& x,
                                  const LayerCall& call, LayerSaved* saved) const {
  const MlpInput in = attend(p, x, call, saved);
  const int64_t rows = in.read.size(0);
  if (saved || !call.pieces.cuts(rows)) return mlp(p, in, call, saved);
  at::Tensor y = at::empty_like(in.residual);
  for (const auto& piece : call.pieces.of(rows))
    y.narrow(0, piece.first, piece.count)
        .copy_(mlp(p, in.rows(piece), piece_call(call, piece), nullptr));
  return y;
}

LayerSaved LayerInPieces::recompute(const zero::UnitParameters& p, const at::Tensor& x,
                                    const LayerCall& call) const {
  LayerSaved saved;
  const at::Tensor read = attend(p, x, call, &saved).read;
  if (call.pieces.cuts(read.size(0)))
    saved.norm1 = {};
  else
    mlp_inner(p, read, call, &saved);
  return saved;
}

at::Tensor LayerInPieces::backward(const zero::UnitParameters& p, at::Tensor dy,
                                   const LayerCall& call, LayerSaved saved) const {
  dy = backward_sum(p, std::move(dy), call);
  at::Tensor dread = parallel_ ? at::zeros_like(dy) : dy;
  if (saved.inner.defined())
    backward_mlp(p, dy, dread, call, saved);
  else
    backward_mlp_in_pieces(p, dy, dread, call, saved);
  return backward_attention(p, std::move(dy), std::move(dread), call, saved);
}

void LayerInPieces::backward_mlp_in_pieces(const zero::UnitParameters& p, const at::Tensor& dy,
                                           const at::Tensor& dread, const LayerCall& call,
                                           LayerSaved& saved) const {
  zero::PieceSums sums;
  const zero::UnitParameters adding = p.adding_to(sums);
  for (const auto& piece : call.pieces.of(saved.x2.size(0))) {
    const LayerCall one = piece_call(call, piece);
    LayerSaved part{.x2 = saved.x2.narrow(0, piece.first, piece.count)};
    mlp_inner(adding, part.x2, one, &part);
    backward_mlp(adding, dy.narrow(0, piece.first, piece.count),
                 dread.narrow(0, piece.first, piece.count), one, part);
    sums.add();
  }
  sums.finish();
  saved.x2.reset();
}

}  // namespace dsj::models
