#include "job/rank_runs.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

using Ranks = std::vector<int>;

TEST(RankRuns, GoThereAndBack) {
  for (const Ranks& ranks :
       std::vector<Ranks>{{}, {7}, {3, 1}, {0, 1, 2, 3}, {0, 4, 8, 20}, {9, 9, 1, 5, 6, 7}})
    EXPECT_EQ(parse_ranks(text_of_ranks(ranks), 21), ranks) << text_of_ranks(ranks);
}

TEST(RankRuns, AreShortHoweverManyRanksFollowTheRule) {
  Ranks rail;
  for (int host = 0; host < 512; ++host) rail.push_back(host * 8 + 3);
  EXPECT_EQ(text_of_ranks(rail), "3+8x512");
  EXPECT_EQ(parse_ranks("3+8x512", 4096), rail);
}

TEST(RankRuns, OtherTextsAreRefused) {
  for (const char* text :
       {"x", "1,", ",1", "1+2", "1+2x", "1+2x0", "1+2x-1", "1 2", "1+1x2000000000", "8", "-1",
        "7+1x2", "1+-1x3", "99999999999", "0+1x8,0"})
    EXPECT_EQ(parse_ranks(text, 8), std::nullopt) << text;
}

}  // namespace
}  // namespace dsj
