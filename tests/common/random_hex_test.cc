#include "common/random_hex.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

TEST(RandomHex, HasTwoDigitsAByteAndIsNeverTheSame) {
  const auto first = random_hex(16), second = random_hex(16);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->size(), 32u);
  EXPECT_EQ(first->find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(*first, *second);
  EXPECT_EQ(*random_hex(0), "");
}

}  // namespace
}  // namespace dsj
