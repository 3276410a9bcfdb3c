#include "common/format.h"

#include <gtest/gtest.h>

#include <string>

namespace dsj::text {
namespace {

TEST(Format, WritesAsPrintfDoes) {
  EXPECT_EQ(format("step %d, loss %.4f", 7, 1.25), "step 7, loss 1.2500");
  EXPECT_EQ(format("%s", ""), "");
}

TEST(Format, HasNoLongestText) {
  const std::string word(100'000, 'x');
  EXPECT_EQ(format("%s.", word.c_str()), word + ".");
}

}  // namespace
}  // namespace dsj::text
