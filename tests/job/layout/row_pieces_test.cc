#include "job/layout/row_pieces.h"

#include <gtest/gtest.h>

namespace dsj::layout {
namespace {

TEST(RowPieces, CoverTheRowsInOrder) {
  EXPECT_EQ(row_pieces(7, 3), (std::vector<RowPiece>{{0, 3}, {3, 3}, {6, 1}}));
  EXPECT_EQ(row_pieces(6, 3), (std::vector<RowPiece>{{0, 3}, {3, 3}}));
  EXPECT_EQ(row_pieces(2, 3), (std::vector<RowPiece>{{0, 2}}));
  EXPECT_TRUE(row_pieces(0, 3).empty());
}

TEST(RowPieces, ShortMicroBatchesAreOnePiece) {
  const PieceRule rule;
  EXPECT_FALSE(rule.cuts(rule.piece));
  EXPECT_EQ(rule.of(rule.piece), (std::vector<RowPiece>{{0, rule.piece}}));
  EXPECT_TRUE(rule.cuts(rule.piece + 1));
  EXPECT_EQ(rule.of(rule.piece + 1), (std::vector<RowPiece>{{0, rule.piece}, {rule.piece, 1}}));
}

TEST(LogitRows, AreAtMostHalfOfTheTargetsAndSoManyElements) {
  const PieceRule rule;
  EXPECT_EQ(logit_rows(1000, 151936, logit_elements(/*accelerator=*/false), rule), 220);
  EXPECT_EQ(logit_rows(1000, 151936, logit_elements(/*accelerator=*/true), rule), 500);
  EXPECT_EQ(logit_rows(1, 151936, 10, rule), 1);
  EXPECT_EQ(logit_rows(0, 151936, 10, rule), 1);
  EXPECT_EQ(logit_rows(2 * rule.piece + 2, 8, INT64_MAX, rule), rule.piece) << "it is cut";
}

TEST(QueryBlock, HoldsAtMostSoManyScores) {
  for (const int64_t length : {1, 17, 1024, 4096, 4097, 32768, 131072})
    for (const int64_t window : {1, 16, 4096, 131072})
      for (const int64_t heads : {1, 12, 64}) {
        const int64_t seen = std::min(window, length);
        const int64_t queries = query_block(length, seen, heads);
        ASSERT_GE(queries, 1);
        ASSERT_LE(queries, length);
        const int64_t held = heads * queries * keys_of_block(length, seen, queries);
        if (queries > 16) {
          EXPECT_LE(held, kScores) << length << " " << window << " " << heads;
        }
      }
}

TEST(QueryBlock, ShortRowsAreOneBlock) {
  EXPECT_EQ(query_block(4096, 16, 1), 4096);
  EXPECT_EQ(query_block(1024, 1024, 12), 1024) << "GPT-2's longest row";
  EXPECT_LT(query_block(32768, 4096, 1), 4096);
}

TEST(QueryBlock, HoldsNothingQuadraticInTheRow) {
  const auto held = [](int64_t length, int64_t seen, int64_t heads) {
    const int64_t queries = query_block(length, seen, heads);
    return heads * queries * keys_of_block(length, seen, queries);
  };
  EXPECT_LE(held(1 << 17, 4096, 1), kScores);
  EXPECT_LE(held(1 << 20, 4096, 1), held(1 << 17, 4096, 1));
  EXPECT_LE(held(1 << 15, 1 << 15, 12), kScores);
}

}  // namespace
}  // namespace dsj::layout
