// Gradients to which a unit adds piece by piece (job/layout/row_pieces.h). A 16-bit gradient would
// round after each piece, and stop growing where a piece is small beside it. So a piece writes into
// a tensor of its own, and what rounding takes from the sum is kept and counts in the next one. An
// fp32 gradient takes the pieces itself. One thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <utility>

#include "engine/zero/flat.h"

namespace dsj::zero {

class PieceSums {
 public:
  /// Where a piece writes the gradient of `count` parameters from `parameter` on. `whole`: the
  /// unit's own. Its tensor undefined (frozen): so is the result's.
  GradView of(int parameter, int count, const GradView& whole);
  /// Adds what was written since the last call. Call it after each piece.
  void add();

 private:
  struct Sum {
    GradView whole;
    at::Tensor piece, lost;  ///< in whole's type
    bool written = false;
  };
  std::map<std::pair<int, int>, Sum> sums_;  ///< by parameter and count
};

}  // namespace dsj::zero
