#include "common/path_list.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

using Words = std::vector<std::string>;

TEST(PathList, CommasLieBetweenWords) {
  EXPECT_EQ(split_commas("a, b,,c ,"), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_commas(""), Words());
}

TEST(PathList, ACommaOfANameIsNoneBetweenPaths) {
  EXPECT_EQ(split_paths("/a/x.json,/b/y.json"), (Words{"/a/x.json", "/b/y.json"}));
  EXPECT_EQ(split_paths("/a/x,y.json"), (Words{"/a/x,y.json"}));
  EXPECT_EQ(split_paths("rows.jsonl"), (Words{"rows.jsonl"}));
  EXPECT_EQ(split_paths(""), Words());
}

}  // namespace
}  // namespace dsj
