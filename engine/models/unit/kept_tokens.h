// Random-LTD: the tokens of each row that a layer processes, drawn for every layer and step. The
// other tokens bypass the layer unchanged, and so do their gradients. docs/data.md has the rules;
// engine/train/step/step.cc applies them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/models/ops/row_bounds.h"

namespace dsj::models {

struct KeptTokens {
  at::Tensor indices;  ///< [K] int64, ascending, into the micro-batch's tokens; on the device
  RowBounds rows;      ///< of the kept tokens; each keeps its position in its whole row
};

/// Draws `kept` of 0 .. length-1, ascending; all choices are equally likely. Uses only integers, so
/// that every machine draws the same. 0 <= kept <= length.
std::vector<int64_t> draw_tokens(int64_t length, int64_t kept, uint64_t key);

/// The key of a layer's draw in a micro-batch. `first_row`: index of its first row among all rows
/// of the step, so that the same rows draw the same for any number of ranks.
uint64_t kept_key(uint64_t seed, int64_t step, int64_t layer, int64_t first_row);

/// Keeps at most `most` tokens, at least 1, of each row; shorter rows stay whole. Row i is drawn
/// with dropout_key(key, i). nullopt if no row is longer.
std::optional<KeptTokens> keep_tokens(const RowBounds& rows, int64_t most, uint64_t key,
                                      at::Device device);

}  // namespace dsj::models
