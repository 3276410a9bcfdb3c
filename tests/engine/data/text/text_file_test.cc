#include "engine/data/text/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dsj::data {
namespace {

using testing::HasSubstr;

TEST(ParseJson, ErrorsHaveLineAndColumn) {
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

TEST(TextFile, ANulByteIsRefused) {
  const std::string text = std::string("{\"a\": 1}") + '\0' + "{\"b\": 2}";
  const auto parsed = parse_json(text, "d.jsonl");
  ASSERT_FALSE(parsed);
  EXPECT_NE(parsed.error().message.find("has a NUL byte (byte 8 of its text)"), std::string::npos)
      << parsed.error().message;
}

/// json.dumps of a pandas row writes NaN where a cell is empty.
TEST(TextFile, PythonsNaNAndInfinityBecomeNull) {
  EXPECT_EQ(nulls_for_nan(R"({"a": NaN, "b": [Infinity, -Infinity], "NaN": "NaN \" Infinity"})"),
            R"({"a": null, "b": [null, null], "NaN": "NaN \" Infinity"})");
  for (const char* text :
       {R"({"a": 1})", R"({"a": "NaN"})", R"({"a": "\\", "b": "Infinity\""})", "", "\"", "\"\\"})
    EXPECT_EQ(nulls_for_nan(text), std::nullopt) << text;
}

}  // namespace
}  // namespace dsj::data
