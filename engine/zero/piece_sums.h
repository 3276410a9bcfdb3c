// Gradients to which a unit adds piece by piece (job/layout/row_pieces.h). A 16-bit gradient would
// round after each piece, and stop growing where a piece is small beside it. So a piece writes into
// a tensor of its own, and what rounding takes from the sum is kept and counts in the next one. An
// fp32 gradient takes the pieces itself. Where it passes through fp16 (torch_autocast), the pieces
// are summed in fp32 first, and the sum is rounded once, as that of whole rows is. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "engine/zero/flat.h"

namespace dsj::zero {

/// out fp32 += sum fp32, rounded to `type` before; `out` may be the sum itself. Both contiguous.
void add_rounded_sum(const at::Tensor& out, const at::Tensor& sum, at::ScalarType type);

class PieceSums {
 public:
  /// Where a piece writes the gradient of `count` parameters from `parameter` on. `whole`: the
  /// unit's own. Its tensor undefined (frozen): so is the result's. `type`: through which the
  /// gradient passes.
  GradView of(int parameter, int count, const GradView& whole, at::ScalarType type);
  /// Adds what was written since the last call. Call it after each piece.
  void add();
  /// Rounds what passes through fp16. Call it after the last piece.
  void finish();

 private:
  struct Sum {
    GradView whole;
    at::Tensor piece;  ///< in whole's type
    at::Tensor lost;   ///< in whole's type; undefined: `piece` is the sum of the pieces
    bool written = false;
  };
  std::map<std::pair<int, int>, Sum> sums_;  ///< by parameter and count
};

}  // namespace dsj::zero
