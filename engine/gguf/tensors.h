// The tensors of a GGUF file, and how each is made from those of a Hugging Face model: renamed,
// with rows reordered, combined from several tensors, or transposed.
// Tested by: tests/engine/gguf/export_test.cc
#pragma once

#include <string>
#include <vector>

#include "engine/gguf/architectures.h"
#include "engine/gguf/format.h"
#include "job/layout/units.h"

namespace dsj::gguf {

/// Consecutive rows of one tensor of the model. A row is an index of the first dimension; for
/// stacked experts, of the first two.
struct Rows {
  std::string tensor;
  int64_t first = 0, count = 0;
  /// If not empty, the source row of each row, relative to `first`.
  std::vector<int64_t> order = {};
};

struct Tensor {
  TensorEntry entry;
  std::vector<Rows> rows;   ///< concatenated
  bool transposed = false;  ///< the model has [in, out]
  float plus = 0;           ///< added to every element
};

/// All tensors in file order, except those of rope scaling. `type`: of matrices; vectors, norms,
/// routers and positions are F32. A matrix whose rows do not fill Q8_0's blocks is F16.
std::vector<Tensor> tensors_of(const layout::ModelConfig& config, const Architecture& of,
                               Type type);

}  // namespace dsj::gguf
