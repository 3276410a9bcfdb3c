// The pieces into which a long micro-batch is cut, so that a unit's intermediate results never
// exist for all tokens. The engine (engine/models) and the memory model use it. It depends only on
// sizes, so all ranks, every attempt and recomputation make the same pieces. Numbers only.
#pragma once

#include <cstdint>
#include <vector>

namespace dsj::layout {

/// Neighbouring rows of a tensor.
struct RowPiece {
  int64_t first = 0, count = 0;
  friend bool operator==(const RowPiece&, const RowPiece&) = default;
};

/// `count` rows in pieces of `most` (at least 1); the last may be shorter. Empty for no rows.
std::vector<RowPiece> row_pieces(int64_t count, int64_t most);

/// The number of tokens that pass a layer's MLP, or the head, at a time.
struct PieceRule {
  /// A product of more rows is not faster; one of fewer reads its weights too often. Micro-batches
  /// up to this size are not cut, so a longer one never takes less memory than a shorter one.
  int64_t piece = 2048;
  /// A GPU adds a piece's weight gradients to their sum in memory: pieces of 2048 rows would spend
  /// longer on that than on their products.
  static PieceRule on(bool accelerator) { return {accelerator ? 8192 : 2048}; }

  bool cuts(int64_t tokens) const { return tokens > piece; }
  std::vector<RowPiece> of(int64_t tokens) const { return row_pieces(tokens, piece); }
};

/// Elements of logits that the head holds at a time. An accelerator adds each piece's weight gradient to the sum in
/// memory, so many small pieces would take longer than the products: 1 GiB in 16 bits. More does not help a CPU.
constexpr int64_t logit_elements(bool accelerator) {
  return int64_t{accelerator ? 512 : 32} << 20;
}
/// Elements of a 16-bit gradient that are summed in fp32 at a time. On a CPU a tile fits into a
/// core's cache, 1 MiB in fp32. On an accelerator each tile costs launches.
constexpr int64_t sum_tile(bool accelerator) {
  return accelerator ? int64_t{16} << 20 : int64_t{256} << 10;
}
/// Targets whose logits are held at a time: at most `elements` logits and half of the targets.
int64_t logit_rows(int64_t targets, int64_t vocab, int64_t elements, const PieceRule& pieces);

/// Tokens that a short convolution (engine/models/mixers/short_conv.h) processes at a time.
inline constexpr int64_t kConvTokens = 2048;

/// Elements of scores, or of a mask, that attention holds at a time.
inline constexpr int64_t kScores = int64_t{16} << 20;
/// If attention needs a mask (a window) or the scores (dropout): the number of queries of a row of
/// `length` tokens that it processes at a time. Each query sees at most `seen` keys; `heads`
/// matrices are held together. A row with at most kScores scores is processed whole. A longer one
/// holds at most kScores, or 16 queries.
int64_t query_block(int64_t length, int64_t seen, int64_t heads);
/// The most keys that a block of `queries` queries sees.
int64_t keys_of_block(int64_t length, int64_t seen, int64_t queries);

}  // namespace dsj::layout
