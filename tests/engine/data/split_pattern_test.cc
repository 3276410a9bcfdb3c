#include "engine/data/split_pattern.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

std::vector<std::string> pieces(std::string_view pattern, std::string_view text) {
  const auto compiled = SplitPattern::compile(pattern);
  EXPECT_TRUE(compiled) << compiled.error().to_string();
  std::vector<Span> spans;
  EXPECT_TRUE(compiled->match(text, spans));
  std::vector<std::string> found;
  for (const Span& span : spans) found.emplace_back(text.substr(span.begin, span.end - span.begin));
  return found;
}

using Pieces = std::vector<std::string>;

TEST(SplitPattern, Gpt2) {
  EXPECT_EQ(pieces(kGpt2Pattern, "I'm 42  years\n\n old"),
            (Pieces{"I", "'m", " 42", " ", " years", "\n\n", " old"}));
}

TEST(SplitPattern, Qwen2CutsDigitsOneByOne) {
  EXPECT_EQ(pieces(kQwen2Pattern, "x=123\n\n  y"),
            (Pieces{"x", "=", "1", "2", "3", "\n\n", " ", " y"}));
  EXPECT_EQ(pieces(kQwen2Pattern, "WE'LL"), (Pieces{"WE", "'LL"}));
}

TEST(SplitPattern, Llama3CutsDigitsByThree) {
  EXPECT_EQ(pieces(kLlama3Pattern, "1234567"), (Pieces{"123", "456", "7"}));
}

TEST(SplitPattern, LastSpaceOfARunGoesWithTheWord) {
  EXPECT_EQ(pieces(kGpt2Pattern, "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces(kGpt2Pattern, "a   "), (Pieces{"a", "   "}));
}

TEST(SplitPattern, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_EQ(pieces(R"(\s+)", "a \u180e b\u2003"), (Pieces{" ", " ", "\u2003"}));
  EXPECT_EQ(pieces(R"([^\s]+)", "a\u180e b"), (Pieces{"a\u180e", "b"}));
}

TEST(SplitPattern, ALongRunIsNoProblem) {
  const std::string text = std::string(200000, ' ') + "x" + std::string(200000, 'y');
  EXPECT_EQ(pieces(kQwen2Pattern, text).size(), 2u);
}

TEST(SplitPattern, LiteralText) {
  const auto compiled = SplitPattern::compile("a.b", true);
  std::vector<Span> spans;
  ASSERT_TRUE(compiled->match("axb a.b", spans));
  EXPECT_EQ(spans, (std::vector<Span>{{4, 7}}));
}

TEST(SplitPattern, Translation) {
  EXPECT_EQ(translate_pattern(R"(\p{Lu}\r?[\n-]\.\u4e00)").value(), R"(\p{Lu}\r?[\n-]\.\x{4e00})");
}

TEST(SplitPattern, RefusesWhatTheEnginesReadDifferently) {
  struct Case {
    const char* pattern;
    const char* says;
  };
  for (const Case& c : {Case{R"(\w+)", "\\w"},
                        {R"(\bx)", "\\b"},
                        {R"(\h)", "\\h"},
                        {"^a", "anchor ^"},
                        {"a$", "anchor $"},
                        {"[a[b]]", "class in a class"},
                        {"[a&&b]", "&&"},
                        {"a{,3}", "{,n}"},
                        {"(?<n>a)", "group"},
                        {"(?<=a)b", "group"},
                        {R"([\S])", "\\S in a class"},
                        {"a*", "empty"},
                        {"(", "compile"},
                        {"\\", "backslash"},
                        {R"(\p{Nope})", "compile"}}) {
    const auto compiled = SplitPattern::compile(c.pattern);
    ASSERT_FALSE(compiled) << c.pattern;
    EXPECT_NE(compiled.error().message.find(c.says), std::string::npos) << compiled.error().message;
  }
}

}  // namespace
}  // namespace dsj::data
