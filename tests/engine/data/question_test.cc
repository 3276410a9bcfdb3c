#include "engine/data/question.h"

#include <gtest/gtest.h>

#include <random>

#include "common/files/memory_files.h"
#include "engine/data/dataset.h"
#include "engine/data/shapes/prompt.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

using nlohmann::json;

class QuestionTest : public testing::Test {
 protected:
  QuestionTest() {
    EXPECT_TRUE(files_.make_dir("m"));
    EXPECT_TRUE(
        files_.write_synced("m/tokenizer.json", read_file(fixtures() + "/qwen2/tokenizer.json")));
    EXPECT_TRUE(files_.write_synced("m/tokenizer_config.json", R"({"eos_token": "<|im_end|>"})"));
    tokenizer_ = Tokenizer::load(files_, "m").value();
  }
  Asker asker(const std::string& chat_template = "auto") {
    return Asker(files_, "m", *tokenizer_, chat_template);
  }
  std::string text_of(const Question& question) { return tokenizer_->decode(question.ids, false); }
  MemoryFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(QuestionTest, AnAlpacaRowIsAskedWithoutItsAnswer) {
  auto asks = asker();
  for (const json& input : {json(nullptr), json("")}) {
    const auto question = asks.row({{"instruction", "Add."}, {"input", input}, {"output", "3"}});
    ASSERT_TRUE(question) << question.error().to_string();
    EXPECT_EQ(text_of(*question), alpaca_prompt("Add."));
    EXPECT_EQ(question->answer, "3");
    EXPECT_EQ(question->asked, "Add.");
  }
  const auto open = asks.row({{"instruction", "Add."}, {"input", "1 2"}});
  ASSERT_TRUE(open);
  EXPECT_EQ(text_of(*open), alpaca_prompt("Add.", "1 2"));
  EXPECT_EQ(open->answer, std::nullopt);
  const auto context = asks.row(
      {{"instruction", "b"}, {"system", "S"}, {"history", json::array({json::array({"q", "a"})})}});
  EXPECT_EQ(text_of(*context),
            "S\n\n### Instruction:\nq\n\n### Response:a<|im_end|>\n\n### Instruction:\nb\n\n### "
            "Response:");
}

/// A file of questions has no answers.
TEST_F(QuestionTest, APromptOrAQuestionAloneIsAsked) {
  auto asks = asker("chatml");
  const json turns = json::array({{{"role", "user"}, {"content", "Add."}}});
  const auto chat = asks.row({{"messages", turns}});
  const auto prompt = asks.row({{"prompt", turns}, {"id", 3}});
  ASSERT_TRUE(chat && prompt);
  EXPECT_EQ(text_of(*prompt), text_of(*chat));
  EXPECT_EQ(prompt->answer, std::nullopt);
  const auto text = asks.row({{"prompt", "Add: "}});
  ASSERT_TRUE(text);
  EXPECT_EQ(text_of(*text), "Add: ");
  EXPECT_EQ(text->answer, std::nullopt);
  const auto alpaca = asks.row({{"instruction", "Add."}});
  for (const char* name : {"question", "query", "problem", "input", "inputs"}) {
    const auto question = asks.row({{name, "Add."}, {"id", "7"}});
    ASSERT_TRUE(question) << name;
    EXPECT_EQ(text_of(*question), text_of(*alpaca)) << name;
    EXPECT_EQ(question->answer, std::nullopt);
  }
  EXPECT_FALSE(asks.row({{"prompt", json::array()}}));
  EXPECT_FALSE(asks.row({{"prompt", 3}}));
  EXPECT_FALSE(asks.row({{"id", 3}}));
  EXPECT_FALSE(asks.row(json::array()));
  EXPECT_FALSE(asks.row({{"prompt", "q"}, {"chosen", "a"}, {"rejected", "b"}})) << "a pair";
}

/// A named template renders the row as in training.
TEST_F(QuestionTest, ANamedTemplateRendersAnAlpacaRow) {
  auto asks = asker("chatml");
  for (const bool answered : {true, false}) {
    json row = {{"instruction", "Add."}, {"input", "1 2"}, {"system", "S"}};
    if (answered) row["output"] = "3";
    const auto question = asks.row(row);
    ASSERT_TRUE(question) << question.error().to_string();
    EXPECT_EQ(text_of(*question),
              "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nAdd.\n1 2<|im_end|>\n"
              "<|im_start|>assistant\n");
    EXPECT_EQ(question->answer, answered ? std::optional<std::string>("3") : std::nullopt);
  }
}

TEST_F(QuestionTest, AChatRowIsAskedUpToItsLastAnswer) {
  auto asks = asker("chatml");
  const std::string prompt =
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n<|im_start|>user\n"
      "more?<|im_end|>\n<|im_start|>assistant\n";
  json row = {{"messages",
               {{{"role", "user"}, {"content", "hi"}},
                {{"role", "assistant"}, {"content", "yo"}},
                {{"role", "user"}, {"content", "more?"}}}}};
  const auto open = asks.row(row);
  ASSERT_TRUE(open) << open.error().to_string();
  EXPECT_EQ(text_of(*open), prompt);
  EXPECT_EQ(open->answer, std::nullopt);
  EXPECT_EQ(open->asked, "more?");
  row["messages"].push_back({{"role", "assistant"}, {"content", "no"}});
  const auto answered = asks.row(row);
  ASSERT_TRUE(answered);
  EXPECT_EQ(text_of(*answered), prompt);
  EXPECT_EQ(answered->answer, "no");
  EXPECT_FALSE(asker().row(row)) << "the model has no template, and none is named";
}

/// The question equals the text before the answer in training.
TEST_F(QuestionTest, TheQuestionIsTheBeginningOfTheTrainedRow) {
  const json rows = {{{"instruction", "Say hi"}, {"output", " hello"}},
                     {{"instruction", "Say hi"},
                      {"output", " hello"},
                      {"history", json::array({json::array({"a", "b"})})}}};
  for (const json& row : rows) {
    EXPECT_TRUE(files_.write_synced("r.json", json::array({row}).dump()));
    const auto dataset = Dataset::open(files_, "r.json", tokenizer_.get(), {.vocab_size = 100'000});
    const auto sample = (*dataset)->at(0).value();
    auto asks = asker();
    const auto question = asks.row(row).value();
    ASSERT_LT(question.ids.size(), sample.input_ids.size());
    EXPECT_TRUE(
        std::ranges::equal(question.ids, std::span(sample.input_ids).first(question.ids.size())));
    EXPECT_NE(sample.labels[question.ids.size()], kIgnoredLabel);
    EXPECT_EQ(sample.labels[question.ids.size() - 1], kIgnoredLabel);
  }
}

/// Rule: a row's own variables of the template act in a question as in training.
TEST_F(QuestionTest, VariablesOfARowAreTheQuestionsToo) {
  ASSERT_TRUE(files_.write_synced(
      "m/chat_template.jinja",
      "[{{ mode | default('none') }}{{ n | default(0) }}]{% for m in messages %}"
      "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"));
  std::mt19937 draw(3);
  for (int i = 0; i < 100; ++i) {
    json row;
    const json question = json::array({{{"role", "user"}, {"content", "q" + std::to_string(i)}}});
    const json answer = json::array({{{"role", "assistant"}, {"content", "a"}}});
    const bool parts = draw() % 2;
    if (parts) {
      row = {{"prompt", question}, {"completion", answer}};
    } else {
      row = {{"messages", json::array({question[0], answer[0]})}};
    }
    json kwargs = json::object();
    if (draw() % 2) kwargs["mode"] = std::string(1 + draw() % 3, 'x');
    if (draw() % 2) kwargs["n"] = draw() % 100;
    if (draw() % 4) row["chat_template_kwargs"] = kwargs;
    EXPECT_TRUE(files_.write_synced("r.json", json::array({row}).dump()));
    const auto dataset = Dataset::open(files_, "r.json", tokenizer_.get(), {.vocab_size = 100'000});
    ASSERT_TRUE(dataset) << dataset.error().to_string();
    const auto sample = (*dataset)->at(0).value();
    auto asks = asker();
    json alone = row;
    if (parts) alone.erase("completion");
    for (const json& asked : {row, alone}) {
      const auto got = asks.row(asked);
      ASSERT_TRUE(got) << asked << got.error().to_string();
      ASSERT_LT(got->ids.size(), sample.input_ids.size());
      EXPECT_EQ(text_of(*got),
                tokenizer_->decode(std::span(sample.input_ids).first(got->ids.size()), false))
          << asked;
      EXPECT_NE(sample.labels[got->ids.size()], kIgnoredLabel) << asked;
    }
  }
}

TEST_F(QuestionTest, ATextIsATurnIfThereIsATemplateElseAnInstruction) {
  EXPECT_EQ(text_of(asker("chatml").text("hi").value()),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(text_of(asker().text("hi").value()), alpaca_prompt("hi"));
  EXPECT_EQ(text_of(asker().raw("hi").value()), "hi");
  EXPECT_FALSE(asker("llama3").text("hi")) << "the tokenizer lacks its tokens";
}

TEST_F(QuestionTest, BadRowsAreRefusedWithAReason) {
  auto asks = asker("chatml");
  EXPECT_NE(asks.row({{"output", "b"}}).error().message.find("no shape of rows has these"),
            std::string::npos);
  EXPECT_NE(asks.row({{"instruction", 3}}).error().message.find("instruction: is a number"),
            std::string::npos);
  EXPECT_NE(asks.row({{"input_ids", {1}}}).error().message.find("input_ids"), std::string::npos);
  EXPECT_NE(asks.row({{"messages", "a"}}).error().message.find("messages: is text"),
            std::string::npos);
  EXPECT_NE(asks.row(json::array()).error().message.find("is a list"), std::string::npos);
}

TEST_F(QuestionTest, RowsComeFromAFileOrAText) {
  const std::string lines = "{\"instruction\": \"a\"}\n{\"instruction\": \"b\"}\n";
  ASSERT_TRUE(files_.write_synced("r.jsonl", lines));
  EXPECT_EQ(read_rows(files_, "r.jsonl", 10)->size(), 2u);
  EXPECT_EQ(read_rows(files_, "r.jsonl", 1)->size(), 1u);
  EXPECT_EQ(rows_of(lines, "standard input", 10)->at(1)["instruction"], "b");
  EXPECT_EQ(rows_of("[{\"a\": 1}]", "standard input", 10)->size(), 1u);
  const auto bad = rows_of(lines + "{\n", "standard input", 10);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().to_string().find("standard input:3"), std::string::npos)
      << bad.error().to_string();
}

}  // namespace
}  // namespace dsj::data
