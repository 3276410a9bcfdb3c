#include "engine/data/tokenizer/split_pattern.h"

#include <gtest/gtest.h>

namespace dsj::data {
namespace {

std::vector<std::string> pieces(std::string_view pattern, std::string_view text) {
  const auto compiled = SplitPattern::compile(pattern);
  EXPECT_TRUE(compiled) << compiled.error().to_string();
  if (!compiled) return {};
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

TEST(SplitPattern, TheLastSpaceOfARunBelongsToTheWord) {
  EXPECT_EQ(pieces(kGpt2Pattern, "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(pieces(kGpt2Pattern, "a   "), (Pieces{"a", "   "}));
}

TEST(SplitPattern, TheMongolianVowelSeparatorIsNotASpace) {
  EXPECT_EQ(pieces(R"(\s+)", "a \u180e b\u2003"), (Pieces{" ", " ", "\u2003"}));
  EXPECT_EQ(pieces(R"([^\s]+)", "a\u180e b"), (Pieces{"a\u180e", "b"}));
}

TEST(SplitPattern, ALongRunIsMatched) {
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

TEST(SplitPattern, ClassesEqualOnigurumas) {
  EXPECT_EQ(pieces(R"(\w+)", "a_1\u0301-\U0001FA77"), (Pieces{"a_1\u0301"}));
  EXPECT_EQ(pieces(R"(\bx)", "x axx x"), (Pieces{"x", "x"}));
  EXPECT_EQ(pieces(R"(\h+)", "zabZ12"), (Pieces{"ab", "12"}));
  EXPECT_EQ(pieces("[a[bc]]+", "xabcx"), (Pieces{"abc"}));
  EXPECT_EQ(pieces(R"([^(\s|[.,!?])]+)", "a b,c(d|"), (Pieces{"a", "b", "c", "d"}));
  EXPECT_EQ(pieces(R"([\p{L}&&[^\p{Han}]]+)", "ab\u4e2dc"), (Pieces{"ab", "c"}));
  EXPECT_EQ(pieces(R"([^\S ]+)", "a \n\tb"), (Pieces{"\n\t"}));
}

TEST(SplitPattern, AnchorsMatchAtLines) {
  EXPECT_EQ(pieces("^a|a$", "ab\naa\n"), (Pieces{"a", "a", "a"}));
}

TEST(SplitPattern, RepeatedIntervalsFollowRuby) {
  EXPECT_EQ(pieces(R"(\p{N}{1,3}+)", "1234567"), (Pieces{"1234567"}));
  EXPECT_EQ(pieces("a{,2}b", "aaab"), (Pieces{"aab"}));
  EXPECT_EQ(pieces("a{2}?b", "aabb"), (Pieces{"aab", "b"}));
}

TEST(SplitPattern, NewerCharactersHaveTheirCategory) {
  EXPECT_EQ(pieces(R"( ?[\p{P}\p{S}]+)", "I \U0001FA77 you"), (Pieces{" \U0001FA77"}));
  EXPECT_EQ(pieces(R"(\p{Han}+)", "a\U0002EBF0\u4e2d"), (Pieces{"\U0002EBF0\u4e2d"}));
}

TEST(SplitPattern, RefusesSyntaxThatTheEnginesReadDifferently) {
  struct Case {
    const char* pattern;
    const char* says;
  };
  for (const Case& c : {Case{R"(\R)", "\\R"},
                        {R"(\X)", "\\X"},
                        {R"(\Ga)", "\\G"},
                        {R"((a)\1)", "\\1"},
                        {"[[:alpha:]]", "POSIX class"},
                        {"[a", "unclosed class"},
                        {"[]a]", "empty class"},
                        {"[&&a]", "&&"},
                        {"[a&&]", "&&"},
                        {"(?<n>a)", "group"},
                        {"a(?i)b", "(?i)"},
                        {"(*SKIP)a", "verb"},
                        {R"([\R])", "\\R in a class"},
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
