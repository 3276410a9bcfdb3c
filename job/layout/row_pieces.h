// Into which pieces a long micro-batch is cut, so that what a unit computes in between never lives
// for all tokens. The engine cuts by it (engine/models), the memory model counts with it. It goes
// by sizes alone, so that all ranks, every attempt and the recomputation cut alike. Numbers only.
#pragma once

#include <cstdint>
#include <vector>

namespace dsj::layout {

/// Neighbouring rows of a tensor.
struct RowPiece {
  int64_t first = 0, count = 0;
  friend bool operator==(const RowPiece&, const RowPiece&) = default;
};

/// `count` rows in pieces of `most` (at least 1); the last may be shorter. No rows: no piece.
std::vector<RowPiece> row_pieces(int64_t count, int64_t most);

/// How many tokens go through a layer's MLP, or through the head, at a time.
struct PieceRule {
  /// A product of more rows runs no faster, one of fewer reads its weights too often. Micro-batches
  /// up to it are not cut; so a longer one never takes less memory than a shorter one.
  int64_t piece = 2048;

  bool cuts(int64_t tokens) const { return tokens > piece; }
  std::vector<RowPiece> of(int64_t tokens) const { return row_pieces(tokens, piece); }
};

/// Elements of logits that the head holds at a time. An accelerator adds each piece's weight gradient to the sum in memory,
/// so that many small pieces would take longer than the products: 1 GiB of them in 16 bits. A CPU gains nothing by more.
constexpr int64_t logit_elements(bool accelerator) {
  return int64_t{accelerator ? 512 : 32} << 20;
}
/// Elements of a 16-bit gradient that are added up in fp32 at a time. On a CPU a tile stays in a
/// core's cache, 1 MiB in fp32. On an accelerator each tile costs launches.
constexpr int64_t sum_tile(bool accelerator) {
  return accelerator ? int64_t{16} << 20 : int64_t{256} << 10;
}
/// Targets whose logits are held at a time, of so many: at most `elements` logits, and half of the targets.
int64_t logit_rows(int64_t targets, int64_t vocab, int64_t elements, const PieceRule& pieces);

/// Elements of scores, or of a mask, that attention holds at a time.
inline constexpr int64_t kScores = int64_t{16} << 20;
/// Where attention needs a mask (a window) or the scores themselves (dropout): how many queries of
/// a row of `length` tokens it takes at a time. Each sees at most `seen` keys; `heads` matrices are
/// held together. A row whose scores are at most kScores is taken whole. Longer ones hold at most
/// kScores, or 16 queries.
int64_t query_block(int64_t length, int64_t seen, int64_t heads);
/// The most keys that a block of so many queries sees.
int64_t keys_of_block(int64_t length, int64_t seen, int64_t queries);

}  // namespace dsj::layout
