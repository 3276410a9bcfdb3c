#include "engine/data/chat/learning.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/data/dataset.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

const std::vector<std::string> kMarks = {"<s>", "<end>"};

std::vector<ChatPiece> two_turns() {
  return {{"<s>q<end>\n"}, {"yes<end>", true}, {"\n<s>r<end>\n"}, {"no<end>", true}, {"\n"}};
}

/// The learned parts in brackets.
std::string shown(const std::vector<ChatPiece>& pieces) {
  std::string text;
  for (const ChatPiece& piece : pieces) text += piece.learned ? "[" + piece.text + "]" : piece.text;
  return text;
}

std::string chosen(const Learning& learning) {
  return shown(choose_pieces(learning, two_turns(), kMarks));
}

TEST(Learning, TurnKeepsTheTemplatesEndTokens) {
  EXPECT_EQ(chosen({}), "<s>q<end>\n[yes<end>]\n<s>r<end>\n[no<end>]\n");
}

TEST(Learning, AllEndTokensAreLearned) {
  EXPECT_EQ(chosen({.ends = EndTokens::All}),
            "<s>q[<end>]\n[yes][<end>]\n<s>r[<end>]\n[no][<end>]\n");
}

TEST(Learning, OnlyTheLastEndTokenIsLearned) {
  EXPECT_EQ(chosen({.ends = EndTokens::Last}), "<s>q<end>\n[yes]<end>\n<s>r<end>\n[no][<end>]\n");
}

TEST(Learning, NoEndTokenIsLearned) {
  EXPECT_EQ(chosen({.ends = EndTokens::None}), "<s>q<end>\n[yes]<end>\n<s>r<end>\n[no]<end>\n");
}

TEST(Learning, InputsAreLearnedWithTheRest) {
  EXPECT_EQ(chosen({.inputs = true}), "[<s>q<end>\nyes<end>\n<s>r<end>\nno<end>\n]");
}

TEST(Learning, AnswersWithoutAnEndTokenStayAsTheyAre) {
  const std::vector<ChatPiece> pieces = {{"<s>q"}, {"yes", true}};
  EXPECT_EQ(shown(choose_pieces({.ends = EndTokens::All}, pieces, kMarks)), "<s>q[yes]");
}

TEST(Learning, ParsesTheSettings) {
  EXPECT_EQ(learning_of(false, false, "turn"), Learning());
  EXPECT_EQ(learning_of(true, true, "all"),
            (Learning{.inputs = true, .last_answer = true, .ends = EndTokens::All}));
  EXPECT_EQ(learning_of(false, false, "last").ends, EndTokens::Last);
  EXPECT_EQ(learning_of(false, false, "none").ends, EndTokens::None);
}

TEST(Learning, WithoutHistoryTheLastLearnedTurnIsLearned) {
  std::vector<Turn> turns = {{"user", "a"},
                             {"assistant", "b", true},
                             {"user", "c"},
                             {"assistant", "d", true},
                             {"assistant", "e"}};
  choose_turns({.last_answer = true}, turns);
  std::vector<bool> learned;
  for (const Turn& turn : turns) learned.push_back(turn.learned);
  EXPECT_EQ(learned, (std::vector<bool>{false, false, false, true, false}));
  turns[1].learned = true;
  choose_turns({}, turns);
  EXPECT_TRUE(turns[1].learned && turns[3].learned);
}

/// The text of a row's tokens that have labels.
std::string targets(const nlohmann::json& row, const Learning& learning) {
  const TempDir dir;
  dir.write("tokenizer.json", read_file(fixtures() + "/qwen2/tokenizer.json"));
  dir.write("tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  const auto tokenizer = Tokenizer::load(dir.path()).value();
  const auto rows = Dataset::open(dir.write("rows.jsonl", row.dump() + "\n"), tokenizer.get(),
                                  {.vocab_size = tokenizer->vocab_size(),
                                   .chat_template = row.contains("messages") ? "chatml" : "auto",
                                   .learning = learning});
  EXPECT_TRUE(rows) << rows.error().to_string();
  const Sample sample = (*rows)->at(0).value();
  std::vector<int32_t> learned;
  for (const int32_t label : sample.labels) {
    if (label >= 0) learned.push_back(label);
  }
  return tokenizer->decode(learned, false);
}

const nlohmann::json kChat = {{"messages",
                               {{{"role", "user"}, {"content", "q"}},
                                {{"role", "assistant"}, {"content", "yes"}},
                                {{"role", "user"}, {"content", "r"}},
                                {{"role", "assistant"}, {"content", "no"}}}}};
const nlohmann::json kAlpaca = {
    {"instruction", "q"},
    {"output", "no"},
    {"history", nlohmann::json::array({nlohmann::json::array({"p", "yes"})})}};

TEST(Learning, AppliesToChatRows) {
  EXPECT_EQ(targets(kChat, {}), "yes<|im_end|>no<|im_end|>");
  EXPECT_EQ(targets(kChat, {.last_answer = true}), "no<|im_end|>");
  EXPECT_EQ(targets(kChat, {.ends = EndTokens::Last}), "yesno<|im_end|>");
  EXPECT_EQ(targets(kChat, {.ends = EndTokens::All}),
            "<|im_end|>yes<|im_end|><|im_end|>no<|im_end|>");
  EXPECT_EQ(targets(kChat, {.inputs = true}),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n"
            "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\nno<|im_end|>\n");
}

TEST(Learning, AppliesToAlpacaRows) {
  EXPECT_EQ(targets(kAlpaca, {}), "yes<|im_end|>no<|im_end|>");
  EXPECT_EQ(targets(kAlpaca, {.last_answer = true}), "no<|im_end|>");
  EXPECT_EQ(targets(kAlpaca, {.ends = EndTokens::None}), "yesno");
  const std::string all = targets(kAlpaca, {.inputs = true});
  EXPECT_TRUE(all.starts_with("Below is an instruction") && all.ends_with("no<|im_end|>")) << all;
}

}  // namespace
}  // namespace dsj::data
