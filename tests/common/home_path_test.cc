#include "common/home_path.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace dsj {
namespace {

TEST(HomePathTest, SaysWhatToWrite) {
  ASSERT_EQ(setenv("HOME", "/home/ada", 1), 0);
  EXPECT_EQ(home_path("~/rows.json")->message, "\"~/rows.json\": ~ is not expanded here");
  EXPECT_EQ(home_path("~/rows.json")->hint, "write /home/ada/rows.json");
  EXPECT_EQ(home_path("~")->hint, "write /home/ada");
  EXPECT_EQ(home_path("~root/x")->hint, "write /root/x");
  EXPECT_EQ(home_path("~nobody-has-this-name/x")->hint, "write the path of the home directory");
}

TEST(HomePathTest, OtherNamesMayHoldATilde) {
  for (const char* path :
       {"", "rows.json", "/data/~/rows.json", "./~", "a~/b", "~draft.json", "~1"})
    EXPECT_FALSE(home_path(path)) << path;
}

}  // namespace
}  // namespace dsj
