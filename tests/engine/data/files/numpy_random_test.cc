#include "engine/data/files/numpy_random.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

using Numbers = std::vector<int64_t>;

// Expected values: numpy 2.4.6, default_rng(seed).
TEST(NumpyRandom, Uniform) {
  NumpyRandom random(0);
  EXPECT_EQ(random.uniform(), 0x1.461fd79fb3850p-1);
  EXPECT_EQ(random.uniform(), 0x1.1442f7e20b674p-2);
  EXPECT_EQ(random.uniform(), 0x1.4fa7b529d9bd0p-5);
}

TEST(NumpyRandom, Permutation) {
  EXPECT_EQ(NumpyRandom(42).permutation(10), (Numbers{5, 6, 0, 7, 3, 2, 4, 9, 1, 8}));
  EXPECT_EQ(NumpyRandom((uint64_t{1} << 40) + 5).permutation(12),
            (Numbers{9, 5, 1, 2, 8, 3, 0, 10, 7, 4, 6, 11}));
  const Numbers many = NumpyRandom(7).permutation(3000);
  EXPECT_EQ((Numbers{many[0], many[1], many[1500], many[2999]}), (Numbers{1661, 906, 2621, 2699}));
  EXPECT_EQ(NumpyRandom(1).permutation(0), Numbers());
}

TEST(NumpyRandom, AWeightOfZeroIsNeverDrawn) {
  NumpyRandom random(3);
  const WeightedChoice choice(std::vector<double>{0, 2, 0, 1, 0});
  std::vector<int> counts(5);
  for (int i = 0; i < 3000; ++i) ++counts[choice.draw(random)];
  EXPECT_EQ(counts[0] + counts[2] + counts[4], 0);
  EXPECT_GT(counts[1], counts[3]);
}

}  // namespace
}  // namespace dsj::data
