#include "job/layout/shape/delta_pieces.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace dsj::layout {
namespace {

/// Every chunk of every row once, in its row's order; no piece beyond the bound; a state kept for at
/// most every four chunks of a row.
void expect_whole(const std::vector<int64_t>& lengths) {
  std::map<int64_t, int64_t> tokens;
  int64_t states = 0, largest = 0;
  for (const DeltaGroup& group : delta_groups(lengths)) {
    ASSERT_GE(group.chunk, 1);
    ASSERT_LE(group.chunk, kDeltaChunk);
    int64_t step = 0;
    for (const DeltaPiece& piece : group.pieces) {
      EXPECT_EQ(piece.first_step, step);
      EXPECT_LE(piece.chunks(), kDeltaChunks);
      largest = std::max(largest, piece.chunks() * group.chunk);
      if (step > 0) states += piece.rows.front();
      for (const int64_t there : piece.rows) {
        ASSERT_LE(there, std::ssize(group.rows));
        for (int64_t i = 0; i < there; ++i) {
          const int64_t row = group.rows[i], first = step * group.chunk;
          EXPECT_EQ(tokens[row], first);
          tokens[row] += std::min(group.chunk, lengths[row] - first);
        }
        ++step;
      }
    }
  }
  int64_t most = 0;
  for (size_t row = 0; row < lengths.size(); ++row) {
    EXPECT_EQ(tokens[static_cast<int64_t>(row)], lengths[row]);
    most += (lengths[row] - 1) / (4 * kDeltaChunk);
  }
  const DeltaSizes sizes = delta_sizes(lengths);
  EXPECT_EQ(sizes.states, states);
  EXPECT_EQ(sizes.tokens, largest);
  EXPECT_LE(states, most);
}

TEST(DeltaPieces, HaveEveryTokenOnce) {
  expect_whole({1});
  expect_whole({64, 64, 65});
  expect_whole({5000});
  expect_whole(std::vector<int64_t>(40, 3));
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    std::vector<int64_t> lengths(random() % 30 + 1);
    for (int64_t& length : lengths)
      length = static_cast<int64_t>(random() % (random() % 3 == 0 ? 3000 : 200)) + 1;
    expect_whole(lengths);
  }
}

TEST(DeltaPieces, AShortRowHasAShortChunk) {
  const std::vector<int64_t> lengths = {3, 7};
  const auto groups = delta_groups(lengths);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].chunk, 7);
  EXPECT_EQ(groups[0].rows, (std::vector<int64_t>{1, 0}));
}

TEST(DeltaPieces, ALongRowRunsSixteenChunksAtATime) {
  const std::vector<int64_t> lengths = {64 * 40};
  const auto groups = delta_groups(lengths);
  ASSERT_EQ(groups.size(), 1u);
  ASSERT_EQ(groups[0].pieces.size(), 3u);
  EXPECT_EQ(groups[0].pieces[1].first_step, 16);
  EXPECT_EQ(delta_sizes(lengths).states, 2);
}

}  // namespace
}  // namespace dsj::layout
