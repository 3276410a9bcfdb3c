// Gradients that a unit computes piece by piece (job/layout/row_pieces.h). A 16-bit gradient would
// round after each piece and stop growing when pieces are small beside the sum. So a piece writes
// to its own tensor, and the rounding error of the sum is carried to the next addition. An fp32
// gradient is added to directly. If it passes through fp16 (torch_autocast), the pieces are summed
// in fp32 and rounded once, like the gradient of a whole row range. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "engine/zero/flat/flat.h"

namespace dsj::zero {

/// out fp32 += sum fp32, first rounded to `type`; `out` may be the sum itself. Both contiguous.
void add_rounded_sum(const at::Tensor& out, const at::Tensor& sum, at::ScalarType type);

class PieceSums {
 public:
  /// Where a piece writes the gradient of `count` parameters from `parameter` on. `whole`: the
  /// unit's own view; if its tensor is undefined (frozen), so is the result's. `type`: the type
  /// that the gradient passes through.
  GradView of(int parameter, int count, const GradView& whole, at::ScalarType type);
  /// Adds the writes since the last call. Call it after each piece.
  void add();
  /// Rounds sums that pass through fp16. Call it after the last piece.
  void finish();

 private:
  struct Sum {
    GradView whole;
    at::Tensor piece;  ///< in whole's type
    at::Tensor lost;   ///< in whole's type; undefined if `piece` is the sum of all
    bool written = false;
  };
  std::map<std::pair<int, int>, Sum> sums_;  ///< by parameter and count
};

}  // namespace dsj::zero
