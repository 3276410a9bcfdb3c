#include "common/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "common/grouped.h"

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

TEST(Grouped, ThousandsHaveCommas) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(52002), "52,002");
  EXPECT_EQ(grouped(-123456789), "-123,456,789");
  EXPECT_EQ(grouped(-123), "-123");
  EXPECT_EQ(grouped(INT64_MAX), "9,223,372,036,854,775,807");
}

}  // namespace
}  // namespace dsj::text
