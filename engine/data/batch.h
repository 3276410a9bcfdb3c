// Rows of different lengths as one rectangle, for the loader and for evaluation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/data/sample.h"

namespace dsj::data {

/// [rows, length], row-major. Padding is at the right, where a causal model's real tokens cannot
/// see it, so there is no attention mask.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;  ///< of the longest row
  std::vector<int64_t> input_ids;
  std::vector<int64_t> labels;       ///< kIgnoredLabel on padding; not shifted
  std::vector<int64_t> row_lengths;  ///< without padding
  int64_t tokens = 0;                ///< without padding
  /// Labels that count in the loss: all but a row's first, because a label is predicted at the
  /// place before it.
  int64_t targets = 0;
};

/// `samples`: at least one, none of them empty (DSJ_CHECK).
Batch collate(std::span<const Sample> samples, int64_t pad_id);

}  // namespace dsj::data
