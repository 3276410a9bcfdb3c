// Random-LTD: the tokens that a layer sees of each row, drawn anew for every layer and step. The
// others pass around the layer unchanged, and so do their gradients. docs/data.md has the
// rules; engine/train/step.cc walks by them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/models/row_bounds.h"

namespace dsj::models {

struct KeptTokens {
  at::Tensor indices;  ///< [K] int64, rising, into the micro-batch's tokens; on the device
  RowBounds rows;      ///< of the kept tokens; each keeps its position in its whole row
};

/// `kept` of 0 .. length-1, rising: each choice equally likely. Integers alone decide, so that every
/// machine draws the same. 0 <= kept <= length.
std::vector<int64_t> draw_tokens(int64_t length, int64_t kept, uint64_t key);

/// The key of a layer's draw in a micro-batch. `first_row`: the place of its first row among all rows
/// of the step, so that another number of ranks draws the same for the same rows.
uint64_t kept_key(uint64_t seed, int64_t step, int64_t layer, int64_t first_row);

/// At most `most` tokens, at least 1, of each row; shorter rows stay whole. Row i is drawn by
/// dropout_key(key, i). nullopt: no row is longer.
std::optional<KeptTokens> keep_tokens(const RowBounds& rows, int64_t most, uint64_t key,
                                      at::Device place);

}  // namespace dsj::models
