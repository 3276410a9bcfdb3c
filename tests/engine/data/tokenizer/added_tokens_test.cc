#include "engine/data/tokenizer/added_tokens.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

/// "text" for text, "#7 text" for a token.
std::vector<std::string> split(std::vector<AddedToken> tokens, std::string_view text,
                               bool skip_special = false) {
  std::vector<std::string> patterns;
  for (const AddedToken& token : tokens) patterns.push_back(token.content);
  const AddedTokenSplitter splitter(std::move(tokens), patterns);
  std::vector<Segment> segments;
  splitter.split(text, skip_special, segments);
  std::vector<std::string> out;
  for (const Segment& segment : segments) {
    out.push_back(segment.id < 0
                      ? std::string(segment.text)
                      : "#" + std::to_string(segment.id) + " " + std::string(segment.text));
  }
  return out;
}

using Parts = std::vector<std::string>;

TEST(AddedTokens, MatchesTheLongestAtTheLeftmostPosition) {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "<a"}, {.id = 2, .content = "<ab>"}, {.id = 3, .content = "b>c"}};
  EXPECT_EQ(split(tokens, "x<ab>c<a"), (Parts{"x", "#2 <ab>", "c", "#1 <a"}));
  EXPECT_EQ(split(tokens, "<a<ab"), (Parts{"#1 <a", "#1 <a", "b"}));
  EXPECT_EQ(split(tokens, ""), Parts{});
}

TEST(AddedTokens, SingleWordMatchesOnlyWholeWords) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "ab", .single_word = true}};
  EXPECT_EQ(split(tokens, "ab abc ab. \u00e9ab"), (Parts{"#1 ab", " abc ", "#1 ab", ". \u00e9ab"}));
}

TEST(AddedTokens, StripIncludesTheWhiteSpace) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "[L]", .lstrip = true},
                                          {.id = 2, .content = "[R]", .rstrip = true}};
  EXPECT_EQ(split(tokens, "a \u3000[L] b"), (Parts{"a", "#1  \u3000[L]", " b"}));
  EXPECT_EQ(split(tokens, "a [R]\n\n b"), (Parts{"a ", "#2 [R]\n\n ", "b"}));
  // White space in the first match is not available to the second.
  EXPECT_EQ(split(tokens, "[R]  [L]"), (Parts{"#2 [R]  ", "#1 [L]"}));
}

TEST(AddedTokens, SpecialTokensCanBePlainText) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<s>", .special = true},
                                          {.id = 2, .content = "<t>"}};
  EXPECT_EQ(split(tokens, "<s><t>", true), (Parts{"<s>", "#2 <t>"}));
}

}  // namespace
}  // namespace dsj::data
