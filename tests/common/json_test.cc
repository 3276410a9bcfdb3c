#include "common/json.h"

#include <gtest/gtest.h>

namespace dsj {
namespace {

TEST(Json, WhatIsThereAndOfTheType) {
  const nlohmann::json object = {{"a", {{"b", 7}}}, {"t", "text"}, {"yes", true}, {"f", 1.5}};
  EXPECT_EQ(json_whole(json_child(object, "a"), "b"), 7);
  EXPECT_EQ(json_text(object, "t"), "text");
  EXPECT_TRUE(json_flag(object, "yes"));
  EXPECT_FALSE(json_whole(object, "f"));
  EXPECT_FALSE(json_whole(object, "t"));
  EXPECT_EQ(json_text(object, "yes"), "");
  EXPECT_FALSE(json_flag(object, "t"));
}

TEST(Json, AnythingMayBeAsked) {
  for (const nlohmann::json& odd :
       {nlohmann::json(), nlohmann::json(5), nlohmann::json::array({1}), nlohmann::json("x")}) {
    EXPECT_TRUE(json_child(odd, "a").is_null());
    EXPECT_TRUE(json_child(json_child(odd, "a"), "b").is_null());
    EXPECT_EQ(json_text(odd, "a"), "");
    EXPECT_FALSE(json_whole(odd, "a"));
    EXPECT_FALSE(json_flag(odd, "a"));
  }
}

}  // namespace
}  // namespace dsj
