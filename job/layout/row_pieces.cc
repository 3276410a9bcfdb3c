#include "job/layout/row_pieces.h"

#include <algorithm>
#include <cmath>

namespace dsj::layout {

std::vector<RowPiece> row_pieces(int64_t count, int64_t most) {
  std::vector<RowPiece> pieces;
  for (int64_t first = 0; first < count; first += most)
    pieces.push_back({first, std::min(most, count - first)});
  return pieces;
}

int64_t logit_rows(int64_t targets, int64_t vocab, int64_t elements, const PieceRule& pieces) {
  const int64_t half = std::max<int64_t>(1, (targets + 1) / 2);
  const int64_t rows = std::clamp<int64_t>(elements / vocab, 1, half);
  return pieces.cuts(targets) ? std::min(rows, pieces.piece) : rows;
}

int64_t query_block(int64_t length, int64_t seen, int64_t heads) {
  const int64_t scores = kScores / heads;  // per matrix
  if (length <= scores / std::max<int64_t>(1, length)) return length;
  // A block of q queries sees at most q + seen - 1 keys: less than twice the larger of the two.
  const auto square = static_cast<int64_t>(std::sqrt(static_cast<double>(scores / 2)));
  const int64_t queries = std::min(square, scores / (2 * std::min(seen, length)));
  return std::min(length, std::max<int64_t>(16, queries));
}

int64_t keys_of_block(int64_t length, int64_t seen, int64_t queries) {
  return std::min(length, queries >= length ? length : queries + seen - 1);
}

}  // namespace dsj::layout
