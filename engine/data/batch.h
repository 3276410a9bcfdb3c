// Rows of different lengths as one run of tokens, for the loader and for evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/sample.h"

namespace dsj::data {

/// Rows laid end to end. Nothing is padded: the model is told where each row ends.
struct Batch {
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;       ///< beside their own tokens; not shifted
  std::vector<int64_t> row_lengths;  ///< in tokens, each at least 1
  int64_t tokens() const { return static_cast<int64_t>(input_ids.size()); }
};

/// `samples`: at least one, none of them empty (DSJ_CHECK).
Batch collate(std::span<const Sample> samples);

}  // namespace dsj::data
