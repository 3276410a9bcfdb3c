#include "common/cut_text.h"

#include <gtest/gtest.h>

#include "common/text.h"

namespace dsj::text {
namespace {

TEST(CutText, CutsNoCharacterInTwo) {
  const std::string four = "\xf0\x9f\x98\x80";  // one character
  const std::string text = "a" + four + "\xc3\xbc" + "b" + "\xe2\x82\xac";
  for (size_t most = 0; most <= text.size(); ++most) {
    const std::string first = first_bytes(text, most), last = last_bytes(text, most);
    EXPECT_TRUE(text.starts_with(first)) << most;
    EXPECT_TRUE(text.ends_with(last)) << most;
    for (const std::string& part : {first, last}) {
      EXPECT_LE(part.size(), most);
      EXPECT_GE(part.size() + 3, most) << "no more is lost than a character";
      EXPECT_EQ(invalid_utf8(part), std::string::npos) << most;
    }
  }
  EXPECT_EQ(first_bytes(text, 100), text);
  EXPECT_EQ(last_bytes(text, 100), text);
  EXPECT_EQ(first_bytes("", 5) + last_bytes("", 5), "");
}

/// Bytes that were no text before lose no more than a character has.
TEST(CutText, IsBoundedOnAnyBytes) {
  EXPECT_EQ(first_bytes(std::string(10, '\x80'), 6).size(), 3u);
  EXPECT_EQ(last_bytes(std::string(10, '\x80'), 6).size(), 3u);
}

}  // namespace
}  // namespace dsj::text
