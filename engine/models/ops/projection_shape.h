// The parameters of a unit that form one linear projection (projection.h, adapters.h).
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
  /// The slice of a weight [slices, out, in] and a bias [slices, out]; -1 if they have no slices.
  int64_t slice = -1;

  /// The number of output columns.
  int64_t width() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
};

/// The key of an adapter's dropout, for the unit in this micro-step (LayerCall).
using DropoutKey = std::optional<uint64_t>;

}  // namespace dsj::models
