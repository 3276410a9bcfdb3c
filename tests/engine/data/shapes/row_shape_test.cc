#include "engine/data/shapes/row_shape.h"

#include <gtest/gtest.h>

#include "engine/data/rows.h"

namespace dsj::data {
namespace {

using nlohmann::json;

struct Expected {
  const char* row;
  RowKind kind;
  const char* shape;
  const char* made;  ///< the row in its kind's form
};

TEST(RowShape, ReadsPublishedSpellings) {
  const Expected all[] = {
      {R"({"instruction":"q","input":"","output":"a","text":"t"})", RowKind::Alpaca,
       "alpaca (instruction, output)", nullptr},
      // databricks-dolly-15k
      {R"({"instruction":"q","context":"c","response":"a","category":"x"})", RowKind::Alpaca,
       "instruction, response", R"({"instruction":"q","input":"c","output":"a","category":"x"})"},
      // MetaMathQA
      {R"({"type":"t","query":"q","original_question":"o","response":"a"})", RowKind::Alpaca,
       "query, response", R"({"instruction":"q","output":"a","type":"t","original_question":"o"})"},
      // GSM8K, OpenOrca, sql-create-context
      {R"({"question":"q","answer":"a"})", RowKind::Alpaca, "question, answer",
       R"({"instruction":"q","output":"a"})"},
      {R"({"id":"1","system_prompt":"s","question":"q","response":"a"})", RowKind::Alpaca,
       "question, response", R"({"instruction":"q","system":"s","output":"a","id":"1"})"},
      {R"({"question":"q","context":"c","answer":"a"})", RowKind::Alpaca, "question, answer",
       R"({"instruction":"q","input":"c","output":"a"})"},
      {R"({"input":"q","output":"a"})", RowKind::Alpaca, "input, output",
       R"({"instruction":"q","output":"a"})"},
      {R"({"inputs":"q","targets":"a"})", RowKind::Alpaca, "inputs, targets",
       R"({"instruction":"q","output":"a"})"},
      {R"({"prompt":"q","response":"a"})", RowKind::Alpaca, "prompt, response",
       R"({"instruction":"q","output":"a"})"},
      // NuminaMath has turns in addition to the pair
      {R"({"problem":"q","solution":"a","messages":[{"role":"user","content":"q"}]})",
       RowKind::Chat, "messages (turns)", nullptr},
      {R"({"problem":"q","solution":"a"})", RowKind::Alpaca, "problem, solution",
       R"({"instruction":"q","output":"a"})"},
      {R"({"conversations":[{"from":"human","value":"q"}]})", RowKind::Chat,
       "conversations (turns)", nullptr},
      // LMSYS-Chat-1M and WildChat; OpenChat; Firefly and MOSS; XTuner
      {R"({"conversation_id":"1","conversation":[{"role":"user","content":"q"}]})", RowKind::Chat,
       "conversation (turns)",
       R"({"conversation_id":"1","messages":[{"role":"user","content":"q"}]})"},
      {R"({"items":[{"from":"human","value":"q"}]})", RowKind::Chat, "items (turns)",
       R"({"conversations":[{"from":"human","value":"q"}]})"},
      {R"({"conversation":[{"human":"q","assistant":"a"},{"human":"r","assistant":"b"}]})",
       RowKind::Chat, "conversation (turns)",
       R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
       R"({"role":"user","content":"r"},{"role":"assistant","content":"b"}]})"},
      {R"({"conversation":[{"system":"s","input":"q","output":"a"},{"system":"","input":"r","output":"b"}]})",
       RowKind::Chat, "conversation (turns)",
       R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":"q"},)"
       R"({"role":"assistant","content":"a"},{"role":"user","content":"r"},)"
       R"({"role":"assistant","content":"b"}]})"},
      {R"({"prompt":"q","completion":"a"})", RowKind::Prompt, "prompt, completion", nullptr},
      {R"({"prompt":[{"role":"user","content":"q"}],"completion":[{"role":"assistant","content":"a"}]})",
       RowKind::ChatPrompt, "prompt, completion (turns)",
       R"({"prompt_turns":1,"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]})"},
      {R"({"text":"t","label":0})", RowKind::Text, "text", nullptr},
      {R"({"segments":[{"text":"t","label":true}]})", RowKind::Segments, "segments (text, label)",
       nullptr},
      {R"({"input_ids":[1],"labels":[1]})", RowKind::Tokens, "tokens (input_ids, labels)", nullptr},
  };
  for (const Expected& one : all) {
    const auto shaped = shaped_row({}, one.row);
    ASSERT_TRUE(shaped) << one.row << shaped.error().what;
    EXPECT_EQ(shaped->kind, one.kind) << one.row;
    EXPECT_EQ(shaped->shape, one.shape);
    EXPECT_EQ(shaped->text, one.made ? one.made : one.row);
    EXPECT_EQ(shaped->row, json::parse(shaped->text));
  }
}

TEST(RowShape, PreferenceRowsAreNeverReadAsAnswers) {
  for (
      const char* row : {
          R"({"prompt":"q","chosen":"a","rejected":"b"})",  // TRL
          R"({"chosen":[{"role":"user","content":"q"}],"rejected":[{"role":"user","content":"q"}]})",
          R"({"instruction":"q","input":"","chosen":"a","rejected":"b"})",  // LLaMA-Factory
          R"({"conversations":[{"from":"human","value":"q"}],"chosen":{"from":"gpt","value":"a"}})",
          R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"rejected_response":"b"})",
          R"({"instruction":"q","output":"a","rejected":"b"})",
          R"({"question":"q","response":"a","response_chosen":"a","response_rejected":"b"})",
          R"({"prompt":"q","response":"a","response_0":"a","response_1":"b","better_response_id":0})",
          R"({"question":"q","answer":"a","response_j":"a","response_k":"b"})",
          R"({"prompt":"q","completion":"a","label":false})",  // KTO
          R"({"prompt":"q","completion":"a","label":0})",
          R"({"prompt":"q","completion":"a","label":"False"})",
          R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"a"}],"kto_tag":false})",
          R"({"input":{"messages":[]},"preferred_output":[1],"non_preferred_output":[2]})",
          R"({"instruction":"q","output":"a","preference":"A"})",
      }) {
    const auto shaped = shaped_row({}, row);
    EXPECT_FALSE(shaped) << row;
  }
  // Ranked lists have no answer that could be learned.
  for (const char* row : {R"({"instruction":"q","completions":[{"response":"a"}]})",
                          R"({"prompt":"q","responses":["a","b"],"ranks":[1,2]})",
                          R"({"instruction":"q","output":["a","b"]})"}) {
    const auto shaped = shaped_row({}, row);
    EXPECT_TRUE(!shaped || check_row(*shaped, 10)) << row;
  }
  for (const char* row : {R"({"prompt":"q","completion":"a","label":true})",
                          R"({"instruction":"q","output":"a","chosen":null,"rejected":""})"})
    EXPECT_TRUE(shaped_row({}, row)) << row;
}

/// ms-swift's `swift pt`: an answer without a question is a text.
TEST(RowShape, AnAnswerAloneIsATextToPretrainOn) {
  const json answer = {{"role", "assistant"}, {"content", "all of it"}};
  const auto text = shaped_row({{"messages", json::array({answer})}}, RowAim::Texts);
  ASSERT_TRUE(text);
  EXPECT_EQ(text->kind, RowKind::Text);
  EXPECT_EQ(text->row["text"], "all of it");
  EXPECT_FALSE(shaped_row({{"messages", json::array({answer, answer})}}, RowAim::Texts));
  const json question = {{"role", "user"}, {"content", "?"}};
  EXPECT_FALSE(shaped_row({{"messages", json::array({question})}}, RowAim::Texts));
  EXPECT_EQ(shaped_row({{"messages", json::array({question, answer})}}, RowAim::Answers)->kind,
            RowKind::Chat);
}

TEST(RowShape, CallsBecomeToolCalls) {
  const auto shaped = shaped_row(
      {}, R"({"conversations":[{"from":"human","value":"q"},)"
          R"({"from":"function_call","value":"{\"name\":\"f\",\"arguments\":{\"b\":1,\"a\":2}}"},)"
          R"({"from":"observation","value":"3"},{"from":"gpt","value":"a"}]})");
  ASSERT_TRUE(shaped) << shaped.error().what;
  EXPECT_EQ(
      shaped->text,
      R"({"conversations":[{"from":"human","value":"q"},{"from":"assistant","value":"",)"
      R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"b":1,"a":2}}}]},)"
      R"({"from":"observation","value":"3"},{"from":"gpt","value":"a"}]})");
  EXPECT_FALSE(check_row(*shaped, 10));
  const auto bad =
      shaped_row({}, R"({"messages":[{"role":"function_call","content":"call f please"}]})");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().field, "messages[0]");
}

TEST(RowShape, KnowsThePublishedSpeakers) {
  for (const char* who : {"gpt", "GPT", "assistant", "chatgpt", "bing", "bard", "model", "bot"}) {
    const json row = {
        {"conversations", {{{"from", "Human"}, {"value", "q"}}, {{"from", who}, {"value", "a"}}}}};
    const auto shaped = shaped_row(row);
    ASSERT_TRUE(shaped);
    EXPECT_FALSE(check_row(*shaped, 10)) << who;
  }
}

TEST(RowShape, ARowWithoutAShapeListsItsFields) {
  const auto none = shaped_row({}, R"({"foo":1,"bar":2})");
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().what.starts_with("has the fields bar, foo, and no shape of rows"))
      << none.error().what;
  EXPECT_EQ(shaped_row({}, "3").error().what, "is a number, expected an object");
  EXPECT_NE(shaped_row({}, "{").error().what.find("is not JSON"), std::string::npos);
  EXPECT_EQ(shaped_row({}, R"({"prompt":[],"completion":"a"})").error().field, "completion");
}

TEST(RowShape, ErrorsUseTheFilesFieldNames) {
  const auto shaped = shaped_row({}, R"({"question":"q","response":"a"})");
  EXPECT_EQ(shaped->own_name("instruction"), "question");
  EXPECT_EQ(shaped->own_name("output"), "response");
  EXPECT_EQ(shaped->own_name("history[0]"), "history[0]");
}

TEST(RowShape, BadSegmentsAreRefused) {
  for (const char* row : {R"({"segments":3})", R"({"segments":[3]})", R"({"segments":[]})",
                          R"({"segments":[{"text":"t"}]})", R"({"segments":[{"label":true}]})",
                          R"({"segments":[{"text":"t","label":false}]})", R"({"text":""})",
                          R"({"text":3})", R"({"prompt":3,"completion":"a"})"}) {
    const auto shaped = shaped_row({}, row);
    ASSERT_TRUE(shaped) << row;
    EXPECT_TRUE(check_row(*shaped, 10)) << row;
  }
}

}  // namespace
}  // namespace dsj::data
