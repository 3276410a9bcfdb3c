#include "common/json_depth.h"

#include <gtest/gtest.h>

#include <string>

namespace dsj {
namespace {

TEST(JsonDepth, CountsBracketsOutsideStrings) {
  EXPECT_EQ(json_depth("3"), 0u);
  EXPECT_EQ(json_depth(R"({"a": [1, {"b": "[[[\"[["}], "c": []})"), 3u);
  EXPECT_EQ(json_depth("]]][[ "), 2u);
  EXPECT_EQ(json_depth(std::string(1'000'000, '[')), 1'000'000u);
}

}  // namespace
}  // namespace dsj
