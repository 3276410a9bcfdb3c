// How a tensor's elements are found in files that have equal shares of it.
#include "engine/deepspeed/ranges.h"

#include <gtest/gtest.h>

namespace dsj::deepspeed {
namespace {

constexpr Share share(size_t file, int64_t begin, int64_t elements, int64_t at) {
  return {file, begin, elements, at};
}

TEST(DealtTest, ARangeLiesInTheFilesThatHoldIt) {
  // Elements 7 to 16 of a vector of which each file has 5, from file 2 on.
  const Dealt dealt{.elements = 10, .first = 2, .shift = 7, .each = 5, .flat = {}, .base = 100};
  EXPECT_EQ(shares_of(dealt, 0, 10),
            (std::vector{share(3, 0, 3, 102), share(4, 3, 5, 100), share(5, 8, 2, 100)}));
  EXPECT_EQ(shares_of(dealt, 4, 2), std::vector{share(4, 4, 2, 101)});
  EXPECT_TRUE(shares_of(dealt, 10, 0).empty());
}

TEST(DealtTest, AFileHasWhatTheRangesFindThere) {
  for (const int64_t elements : {1, 4, 5, 23})
    for (const int64_t shift : {0, 3, 5, 11})
      for (const int64_t each : {1, 5, 40}) {
        const Dealt dealt{
            .elements = elements, .first = 1, .shift = shift, .each = each, .flat = {}, .base = 9};
        std::vector<Share> found;
        for (size_t file = 0; file < 100; ++file)
          if (const auto one = share_in(dealt, file)) found.push_back(*one);
        EXPECT_EQ(found, shares_of(dealt, 0, elements)) << elements << " " << shift << " " << each;
      }
}

TEST(DealtTest, AWholeTensorIsOneFiles) {
  const Dealt dealt = whole(8, 3, {.state = "master"}, 20);
  EXPECT_EQ(shares_of(dealt, 2, 4), std::vector{share(3, 2, 4, 22)});
  EXPECT_EQ(share_in(dealt, 3), share(3, 0, 8, 20));
  EXPECT_FALSE(share_in(dealt, 2));
  EXPECT_FALSE(share_in(dealt, 4));
  const Dealt empty = whole(0, 3, {.state = "master"});
  EXPECT_FALSE(share_in(empty, 3));
  EXPECT_TRUE(shares_of(empty, 0, 0).empty());
}

TEST(DealtTest, ACutKeepsGapsAndCountsBytes) {
  FlatVector flat;
  append(flat, 0, {.dtype = weights::DType::F32, .elements = 4, .begin = 1000});
  append(flat, 4, {.dtype = weights::DType::F32, .elements = 0, .begin = 1});
  append(flat, 6, {.dtype = weights::DType::BF16, .elements = 4, .begin = 2000});
  const auto parts = cut(flat, 3, 5);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0].begin, 3);
  EXPECT_EQ(parts[0].elements, 1);
  EXPECT_EQ(parts[0].byte, 1012);
  EXPECT_EQ(parts[1].begin, 6);
  EXPECT_EQ(parts[1].elements, 2);
  EXPECT_EQ(parts[1].byte, 2000);
  EXPECT_TRUE(cut(flat, 4, 2).empty());
}

}  // namespace
}  // namespace dsj::deepspeed
