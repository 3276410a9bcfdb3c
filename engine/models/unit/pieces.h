// Runs a layer's MLP piece by piece (job/layout/row_pieces.h) if backward keeps nothing of it:
// without backward, or if backward recomputes it. So pieces need no more products than whole rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "engine/models/unit/unit.h"

namespace dsj::models {

/// The input of an MLP, and the residual to which its result is added. They are one tensor, unless
/// attention and the MLP have the same input (layout::ModelConfig::parallel).
struct MlpInput {
  at::Tensor read, residual;  ///< [N, H]
  MlpInput rows(const layout::RowPiece& piece) const {
    return {read.narrow(0, piece.first, piece.count), residual.narrow(0, piece.first, piece.count)};
  }
};

/// The dropout key of a piece of the rows.
std::optional<uint64_t> piece_key(std::optional<uint64_t> key, const layout::RowPiece& piece);

/// A layer of two halves: attention, then an MLP, in pieces if the call's rule says so.
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
  /// Recomputes the MLP, one piece at a time.
  void backward_mlp_in_pieces(const zero::UnitParameters& p, const at::Tensor& dy,
                              const at::Tensor& dread, const LayerCall& call,
                              LayerSaved& saved) const;

  /// From the gradient of the layer's result to that of its sum; may be dy itself.
  virtual at::Tensor backward_sum(const zero::UnitParameters&, at::Tensor dy,
                                  const LayerCall&) const {
    return dy;
  }
  /// Everything before the MLP.
  virtual MlpInput attend(const zero::UnitParameters& p, const at::Tensor& x, const LayerCall& call,
                          LayerSaved* saved) const = 0;
  /// The MLP's first half: the input of its activation.
  virtual at::Tensor mlp_inner(const zero::UnitParameters& p, const at::Tensor& read,
                               const LayerCall& call, LayerSaved* saved) const = 0;
  virtual at::Tensor mlp(const zero::UnitParameters& p, const MlpInput& in, const LayerCall& call,
                         LayerSaved* saved) const = 0;
  /// dread [N, H] += gradient of the MLP's input. It is dy itself, unless the layer is parallel.
  virtual void backward_mlp(const zero::UnitParameters& p, const at::Tensor& dy,
                            const at::Tensor& dread, const LayerCall& call,
                            LayerSaved& saved) const = 0;
  /// dy: gradient of the residual after attention; dread: as backward_mlp left it. Returns the
  /// gradient of x. Recomputes norm1 if it was not saved.
  virtual at::Tensor backward_attention(const zero::UnitParameters& p, at::Tensor dy,
                                        at::Tensor dread, const LayerCall& call,
                                        LayerSaved& saved) const = 0;

  const bool parallel_;
};

}  // namespace dsj::models
