// The tensors of a GGUF file, and how each is made of those of a Hugging Face model: under another
// name, with its rows in another order, of several tensors, or transposed.
// Tested by: tests/engine/gguf/export_test.cc
#pragma once

#include <string>
#include <vector>

#include "engine/gguf/architectures.h"
#include "engine/gguf/format.h"
#include "job/layout/units.h"

namespace dsj::gguf {

/// Rows of one tensor of the model, in order. A row is what one index of the first dimension names;
/// of stacked experts, of the first two.
struct Rows {
  std::string tensor;
  int64_t first = 0, count = 0;
  /// Not empty: the row to take for each row, from `first` on.
  std::vector<int64_t> order = {};
};

struct Tensor {
  TensorEntry entry;
  std::vector<Rows> rows;   ///< one below the other
  bool transposed = false;  ///< the model has [in, out]
  float plus = 0;           ///< added to every element
};

/// In the order of the file, all but what rope scaling adds. `type`: of matrices; vectors, norms,
/// routers and positions are F32. A matrix whose rows Q8_0's blocks do not fill is F16.
std::vector<Tensor> tensors_of(const layout::ModelConfig& config, const Architecture& of,
                               Type type);

}  // namespace dsj::gguf
