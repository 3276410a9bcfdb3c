// Compares the quick ways to find answers with the slow one.
#include "engine/data/chat/answers.h"

#include <gtest/gtest.h>

#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

const std::vector<std::string> kSpecials = {"<|im_start|>", "<|im_end|>", "<s>", "</s>"};

/// All turns are rendered alike.
constexpr char kPlain[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/// Like Qwen3: only answers after the last question show their reasoning.
constexpr char kThinks[] =
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 > ns.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
/// Like DeepSeek-R1: the prompt opens a <think> that an answer does not show.
constexpr char kOpens[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
/// Numbers the turns from the end, so every turn changes when others follow.
constexpr char kCounts[] =
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ loop.revindex }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}";

ChatTemplate form_of(const char* source) {
  return ChatTemplate::parse(source, "form", {}, kSpecials, 0).value();
}

/// Some answers are not learned, some are empty, some repeat the text around them.
std::vector<Turn> drawn_turns(uint64_t seed, size_t count) {
  Lcg r(seed);
  const auto text = [&] {
    static const std::vector<std::string> kTexts = {
        "a", " b\nc ", "the answer", "", "assistant", "<think> no", "user\nq", "\u4e2d"};
    return r.pick(kTexts) + r.pick(kTexts);
  };
  std::vector<Turn> turns;
  if (r.below(2) == 0) turns.push_back({"system", text()});
  while (turns.size() < count) {
    turns.push_back({"user", text()});
    turns.push_back({"assistant", text(), r.below(8) != 0});
  }
  return turns;
}

TEST(Answers, TheQuickWaysAgreeWithTheSlowOne) {
  for (const char* source : {kPlain, kThinks, kOpens}) {
    const ChatTemplate form = form_of(source);
    for (uint64_t seed = 0; seed < 60; ++seed) {
      const std::vector<Turn> turns = drawn_turns(seed, 4 + seed);
      const jinja::Value tools = jinja::Value::none();
      const auto whole = form.render(turns, tools, false).value();
      const auto slow = spans_one_by_one(form, turns, tools, whole.text);
      const auto quick = learned_spans(form, turns, tools, whole);
      ASSERT_EQ(slow.has_value(), quick.has_value()) << source << seed;
      if (slow) {
        EXPECT_EQ(*slow, *quick) << source << seed;
      }
    }
  }
}

TEST(Answers, AnAnswerThatQuotesTheMarksIsFoundOneByOne) {
  const ChatTemplate form = form_of(kThinks);
  std::vector<Turn> turns = drawn_turns(1, 40);
  turns[20].content = "write <|im_start|>assistant\nhere";
  const jinja::Value tools = jinja::Value::none();
  const auto whole = form.render(turns, tools, false).value();
  EXPECT_EQ(learned_spans(form, turns, tools, whole).value(),
            spans_one_by_one(form, turns, tools, whole.text).value());
}

TEST(Answers, TurnsThatChangeWithWhatFollowsAreRefused) {
  const ChatTemplate form = form_of(kCounts);
  const std::vector<Turn> turns = drawn_turns(2, 40);
  const jinja::Value tools = jinja::Value::none();
  const auto whole = form.render(turns, tools, false).value();
  const auto spans = learned_spans(form, turns, tools, whole);
  ASSERT_FALSE(spans);
  EXPECT_NE(spans.error().message.find("its learned part cannot be determined"), std::string::npos);
}

/// spans_one_by_one would take tens of times as long.
TEST(Answers, SixHundredTurnsUseAQuickWay) {
  const ChatTemplate form = form_of(kThinks);
  const std::vector<Turn> turns = drawn_turns(3, 600);
  const jinja::Value tools = jinja::Value::none();
  const auto whole = form.render(turns, tools, false).value();
  const auto spans = learned_spans(form, turns, tools, whole).value();
  EXPECT_GT(spans.size(), 200u);
  for (const TextSpan& span : spans)
    EXPECT_TRUE(std::string_view(whole.text).substr(0, span.end).ends_with("<|im_end|>"));
}

TEST(Answers, WithoutAGenerationPromptTheHeaderIsNotLearned) {
  struct Case {
    const char *header, *behind;
  };
  for (const Case& c : {Case{"<|im_start|>assistant\n", "<think>\n\n</think>\n\n"},
                        {"<s>assistant</s>\n\n", ""},
                        {"<|assistant|>\n", ""}}) {
    const std::string source =
        std::string("{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}") +
        c.header + c.behind + "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}";
    std::vector<std::string> specials = kSpecials;
    specials.push_back("<|assistant|>");
    const auto form = ChatTemplate::parse(source, "form", {}, specials, 0).value();
    const std::vector<Turn> turns = {{"user", "hi"}, {"assistant", "yo", true}};
    const jinja::Value tools = jinja::Value::none();
    const auto whole = form.render(turns, tools, false).value();
    const auto spans = learned_spans(form, turns, tools, whole).value();
    ASSERT_EQ(spans.size(), 1u);
    EXPECT_EQ(whole.text.substr(spans[0].begin, spans[0].end - spans[0].begin),
              std::string(c.behind) + "yo<|im_end|>");
  }
}

TEST(Answers, TheEndTokenIsTheLongestBeforeWhiteSpace) {
  EXPECT_EQ(end_token("a</s>\n ", kSpecials), "</s>");
  EXPECT_EQ(end_token("a", kSpecials), "");
  EXPECT_EQ(end_token("a<|im_end|>b", kSpecials), "");
}

}  // namespace
}  // namespace dsj::data
