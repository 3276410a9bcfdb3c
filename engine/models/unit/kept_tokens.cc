#include "engine/models/unit/kept_tokens.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "common/check.h"
#include "engine/device/device.h"
#include "engine/models/unit/unit.h"

namespace dsj::models {

std::vector<int64_t> draw_tokens(int64_t length, int64_t kept, uint64_t key) {
  DSJ_CHECK(kept >= 0 && kept <= length);
  std::vector<int64_t> drawn;
  drawn.reserve(static_cast<size_t>(kept));
  for (int64_t token = 0; std::ssize(drawn) < kept; ++token) {
    // Selection sampling: this token is taken with probability (still wanted) / (still to come).
    // The upper half of the product is a number below `left`, equally likely each to 2^-64 of it.
    const auto left = static_cast<unsigned __int128>(length - token);
    const uint64_t number = static_cast<uint64_t>(left * dropout_key(key, token) >> 64);
    if (number < static_cast<uint64_t>(kept - std::ssize(drawn))) drawn.push_back(token);
  }
  return drawn;
}

uint64_t kept_key(uint64_t seed, int64_t step, int64_t layer, int64_t first_row) {
  for (const int64_t part : {step, layer, first_row}) seed = dropout_key(seed, part);
  return seed;
}

std::optional<KeptTokens> keep_tokens(const RowBounds& rows, int64_t most, uint64_t key,
                                      at::Device device) {
  DSJ_CHECK(most >= 1);
  std::vector<int64_t> indices, positions, lengths;
  for (int64_t row = 0; row < rows.rows(); ++row) {
    lengths.push_back(std::min(most, rows.length(row)));
    const int64_t start = rows.starts()[static_cast<size_t>(row)];
    for (const int64_t token :
         draw_tokens(rows.length(row), lengths.back(), dropout_key(key, row))) {
      indices.push_back(start + token);
      positions.push_back(token);
    }
  }
  if (std::ssize(indices) == rows.tokens()) return std::nullopt;
  return KeptTokens{device::upload(at::tensor(indices), device),
                    RowBounds(lengths, positions, device)};
}

}  // namespace dsj::models
