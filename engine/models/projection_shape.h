// Which parameters of a unit make one linear projection (projection.h, adapters.h).
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <vector>

namespace dsj::models {

struct Projection {
  int weight = 0;              ///< first of sizes.size() weights, neighbours in the unit
  int bias = -1;               ///< first of as many biases, or -1
  std::vector<int64_t> sizes;  ///< output columns of each
  bool transposed = false;     ///< stored [in, out] (GPT-2's Conv1D); one weight only
  /// Of one weight [slices, out, in] and one bias [slices, out]: which slice; -1: they have none.
  int64_t slice = -1;

  /// All output columns.
  int64_t width() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
};

/// Of the unit in this micro-step (LayerCall): what an adapter drops of its input.
using DropoutKey = std::optional<uint64_t>;

}  // namespace dsj::models
