// The pieces into which the gated delta rule (engine/models/mixers/delta.h) cuts the rows of a
// micro-batch. Within a chunk of a row's tokens everything is matrix products; a state passes from
// chunk to chunk. Chunks of several rows run together, and so do neighbouring chunks of one row, up
// to a number that bounds memory. The engine and the memory model use it. It depends only on sizes,
// so recomputation makes the same pieces. Numbers only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsj::layout {

inline constexpr int64_t kDeltaChunk = 64;   ///< maximum tokens per chunk
inline constexpr int64_t kDeltaChunks = 16;  ///< maximum chunks per piece

/// Chunks that run together, ordered by step: each row's chunk of a step, then the next step.
struct DeltaPiece {
  int64_t first_step = 0;
  std::vector<int64_t> rows;  ///< [step] number of rows with a chunk: the group's first rows
  int64_t chunks() const;
};

/// Rows that run together, and their pieces in order: each continues where the last one ended.
struct DeltaGroup {
  std::vector<int64_t> rows;  ///< indices of rows, the longest first
  int64_t chunk = 0;          ///< tokens per chunk: those of the longest row, or kDeltaChunk
  std::vector<DeltaPiece> pieces;
};

/// The groups of rows with `lengths` tokens, each at least 1.
std::vector<DeltaGroup> delta_groups(std::span<const int64_t> lengths);

/// Sizes for rows of `lengths`: the tokens of the largest piece, padded to whole chunks, and the
/// number of states kept between pieces, each of one row.
struct DeltaSizes {
  int64_t tokens = 0, states = 0;
};
DeltaSizes delta_sizes(std::span<const int64_t> lengths);

}  // namespace dsj::layout
