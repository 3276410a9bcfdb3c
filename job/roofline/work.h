// The work that a rank queues on its GPU, as data: launches, operations and bytes, counted from
// shapes alone. Plain data.
// Tested by: tests/engine/simulated/work_test.cc
#pragma once

#include <cstdint>
#include <vector>

namespace dsj::roofline {

/// Which code computes.
enum class Kind {
  Product,    ///< a matrix product of cuBLAS
  Attention,  ///< a call of libtorch's flash attention
  Ours,       ///< a kernel of engine/kernels/cuda
  Pass,       ///< another elementwise operation of libtorch
};

/// One operation. `bytes` counts every operand once per read or write.
struct Op {
  Kind kind = Kind::Pass;
  int64_t flops = 0;  ///< of products and attention; otherwise 0
  int64_t bytes = 0;
  int64_t launches = 1;
};
using Ops = std::vector<Op>;

/// Tokens of a micro-batch.
struct Batch {
  std::vector<int64_t> lengths;  ///< [row] tokens, at least one row
  int64_t targets = 0;           ///< tokens with a loss, at least one

  int64_t tokens() const {
    int64_t all = 0;
    for (const int64_t length : lengths) all += length;
    return all;
  }
  int64_t longest() const {
    int64_t most = 0;
    for (const int64_t length : lengths) most = length > most ? length : most;
    return most;
  }
  /// Tokens whose output the last layer computes (engine/models/unit/micro_batch.h); 0: all.
  int64_t outputs() const { return (tokens() - targets) * 16 >= tokens() ? targets : 0; }
  /// Pairs of a query and a key in its window; `window` 0: all earlier keys.
  int64_t pairs(int64_t window) const {
    int64_t all = 0;
    for (const int64_t n : lengths) {
      const int64_t w = window > 0 && window < n ? window : n;
      all += w * (w + 1) / 2 + (n - w) * w;
    }
    return all;
  }
};

}  // namespace dsj::roofline
