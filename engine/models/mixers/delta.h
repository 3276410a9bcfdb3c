// A layer's gated delta rule (layout::DeltaConfig), used instead of attention: from the hidden
// state to the input of the output projection, and back. Queries, keys and values go through a
// causal convolution per column and SiLU; queries and keys are normalised to length 1; the rule
// (delta_rule.h) carries a state along each row; an RMS norm per head follows, times SiLU of a
// gate. All after the projections runs in pieces (job/layout/shape/delta_pieces.h). Backward recomputes
// it from the projections' results and the states between pieces. Rows are independent. Roundings
// are those of transformers: fp32 or the products' type.
// Mamba 2 (mamba.h) has the same pieces, states and cache with another rule.
// Tested by: tests/engine/models/delta_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/models/unit/projection.h"
#include "engine/models/unit/unit.h"
#include "job/layout/shape/delta_pieces.h"
#include "job/layout/units.h"

namespace dsj::models {

namespace rule {  // delta_parts.h
struct Weights;
struct Piece;
struct Convolved;
struct Sums;
}  // namespace rule

class DeltaMixer {
 public:
  explicit DeltaMixer(const layout::ModelConfig& config);
  virtual ~DeltaMixer() = default;
  /// h [N, H], normed → [N, value heads * value elements], in h's type.
  at::Tensor forward(const zero::UnitParameters& p, const at::Tensor& h, const RowBounds& rows,
                     DropoutKey key, LayerSaved::Delta* saved) const;
  /// dout: gradient of forward's result. Writes the parameters' gradients; returns that of h.
  at::Tensor backward(const zero::UnitParameters& p, const at::Tensor& dout, const at::Tensor& h,
                      const RowBounds& rows, LayerSaved::Delta saved, DropoutKey key) const;
  /// Inference. Rows that do not begin at position 0 continue from the cache. Updates the cache.
  at::Tensor forward_cached(const zero::UnitParameters& p, const at::Tensor& h,
                            const RowBounds& rows, const LayerCache& cache) const;

 protected:
  using Weights = rule::Weights;
  using Piece = rule::Piece;
  using Convolved = rule::Convolved;
  using Sums = rule::Sums;
  /// The convolution of a piece; `conv`: its columns of the products.
  Convolved convolved(const at::Tensor& conv, const Piece& piece, const Weights& weights) const;
  /// dactive [C T, columns] fp32: gradient after SiLU. Adds to the rows of dconv.
  void convolved_backward(const at::Tensor& dactive, const Convolved& c, const Piece& piece,
                          const Weights& weights, const at::Tensor& dconv, Sums& sums) const;
  /// Writes the piece's rows of out.
  virtual void forward_piece(const at::Tensor& products, const at::Tensor& conv, const Piece& piece,
                             const Weights& weights, const at::Tensor& state,
                             const at::Tensor& out) const;
  /// Writes the piece's rows of dproducts.
  virtual void backward_piece(const at::Tensor& products, const at::Tensor& dout,
                              const Piece& piece, const Weights& weights, const at::Tensor& state,
                              const at::Tensor& dstate, const at::Tensor& dproducts,
                              Sums& sums) const;

  const layout::DeltaConfig config_;
  const double eps_;

 private:
  struct Read;
  Weights weights_of(const zero::UnitParameters& p) const;
  /// The projections' results, in every model's order of columns: convolution, strengths, decays,
  /// gates.
  at::Tensor products(const zero::UnitParameters& p, const at::Tensor& h, DropoutKey key) const;
  at::Tensor products_backward(const zero::UnitParameters& p, const at::Tensor& dproducts,
                               const at::Tensor& h, DropoutKey key) const;
  /// `history`: number of older tokens before each row in the convolution's input.
  Piece piece_of(const layout::DeltaGroup& group, const layout::DeltaPiece& cut,
                 const RowBounds& rows, int64_t history) const;
  /// Zeros [rows, value heads, key elements, value elements].
  at::Tensor zero_state(int64_t rows, const at::Tensor& like) const;
  Read read(const at::Tensor& products, const at::Tensor& conv, const Piece& piece,
            const Weights& weights) const;
  int conv_ = -1, rates_ = -1, shifts_ = -1, norm_ = -1, conv_bias_ = -1, skips_ = -1;
  Projection grouped_, pairs_;  ///< by_group: two products
  Projection all_;              ///< otherwise: four weights as one
};

}  // namespace dsj::models
