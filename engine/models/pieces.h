// A layer's MLP piece by piece (job/layout/row_pieces.h): only where nothing of it is kept for
// backward, which is where there is no backward, or where backward computes it again. So pieces
// cost no product more than whole rows do.
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/unit.h"

namespace dsj::models {

/// What an MLP reads, and what its result is added to: one tensor, unless attention and the MLP read
/// the same input (layout::ModelConfig::parallel).
struct MlpInput {
  at::Tensor read, residual;  ///< [N, H]
  MlpInput rows(const layout::RowPiece& piece) const {
    return {read.narrow(0, piece.first, piece.count), residual.narrow(0, piece.first, piece.count)};
  }
};

/// A layer of two halves: attention, then an MLP that runs in pieces where the call's rule cuts.
class LayerInPieces : public Layer {
 public:
  explicit LayerInPieces(bool parallel) : parallel_(parallel) {}
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                     LayerSaved* saved) const final;
  LayerSaved recompute(const zero::UnitParameters& p, const at::Tensor& x,
                       const LayerCall& call) const final;
  at::Tensor backward(const zero::UnitParameters& p, at::Tensor dy, const LayerCall& call,
                      LayerSaved saved) const final;

 private:
  /// The MLP is computed again, a piece at a time.
  void backward_mlp_in_pieces(const zero::UnitParameters& p, const at::Tensor& dy,
                              const at::Tensor& dread, const LayerCall& call,
                              LayerSaved& saved) const;

  /// The gradient of what attention and the MLP added up to, from that of the result; maybe dy itself.
  virtual at::Tensor backward_sum(const zero::UnitParameters&, at::Tensor dy) const { return dy; }
  /// All before the MLP.
  virtual MlpInput attend(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                          LayerSaved* saved) const = 0;
  /// The MLP's first half: the input of its activation.
  virtual at::Tensor mlp_inner(const zero::UnitParameters& p, const at::Tensor& read,
                               const LayerCall& call, LayerSaved* saved) const = 0;
  virtual at::Tensor mlp(const zero::UnitParameters& p, const MlpInput& in, const LayerCall& call,
                         LayerSaved* saved) const = 0;
  /// dread [N, H] += gradient of what the MLP reads. It is dy itself, unless the layer is parallel.
  virtual void backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy,
                            const at::Tensor& dread, const LayerCall& call,
                            LayerSaved& saved) const = 0;
  /// dy: gradient of the residual behind attention; dread: as backward_mlp left it. Returns that of
  /// x. Where norm1 was not kept, it is computed again.
  virtual at::Tensor backward_attention(const zero::UnitParameters& p, at::Tensor dy,
                                        at::Tensor dread, const LayerCall& call,
                                        LayerSaved& saved) const = 0;

  const bool parallel_;
};

}  // namespace dsj::models
