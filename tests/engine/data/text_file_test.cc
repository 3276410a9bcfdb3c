#include "engine/data/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::data {
namespace {

using testing::HasSubstr;

TEST(ParseJson, ErrorsHaveTheirPlace) {
  const auto bad = parse_json("{\n \"a\" 1}", "t.json");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().to_string(), HasSubstr("t.json:2:6"));
}

TEST(ParseJson, ANumberBeyondDoubleIsRefused) {
  const auto bad = parse_json("[1e999]", "t.json");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().to_string(), HasSubstr("number overflow parsing '1e999'"));
  EXPECT_TRUE(parse_json("[1e-999, 18446744073709551616]", "t.json"));
}

}  // namespace
}  // namespace dsj::data
