// Into which pieces the gated delta rule (engine/models/delta.h) cuts the rows of a micro-batch. Within
// a chunk of a row's tokens all is matrix products; from chunk to chunk goes a state. Chunks of several
// rows run together, and so do neighbours of one row, up to a number that bounds what is held. The engine
// cuts by it, the memory model counts with it. It goes by sizes alone, so that the recomputation cuts
// alike. Numbers only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dsj::layout {

inline constexpr int64_t kDeltaChunk = 64;   ///< tokens of a chunk, at most
inline constexpr int64_t kDeltaChunks = 16;  ///< chunks of a piece, at most

/// Chunks that run together. They lie by step: the chunk of each row that has one, then the next.
struct DeltaPiece {
  int64_t first_step = 0;
  std::vector<int64_t> rows;  ///< of each step, how many rows have a chunk: the first of the group
  int64_t chunks() const;
};

/// Rows that run together, and their pieces in order. A piece goes on where the one before ended.
struct DeltaGroup {
  std::vector<int64_t> rows;  ///< by number, the longest first
  int64_t chunk = 0;          ///< tokens of a chunk: those of the longest row, or kDeltaChunk
  std::vector<DeltaPiece> pieces;
};

/// Rows of `lengths` tokens, each at least 1.
std::vector<DeltaGroup> delta_groups(std::span<const int64_t> lengths);

/// What rows of so many tokens take: the tokens of the largest piece, filled up to whole chunks, and
/// how many states are kept between pieces, one of a row each.
struct DeltaSizes {
  int64_t tokens = 0, states = 0;
};
DeltaSizes delta_sizes(std::span<const int64_t> lengths);

}  // namespace dsj::layout
