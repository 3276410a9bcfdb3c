// Conversations: ids and labels equal to transformers' apply_chat_template
// (fixtures/chat_oracle.json, made by tests/oracle/chat_oracle.py); which template is taken.
#include "engine/data/chat.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"
#include "engine/data/dataset.h"
#include "engine/data/rows.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

using nlohmann::json;

const std::map<std::string, ChatTemplate> kTemplates = {
    {"chatml", ChatTemplate::ChatMl},  {"qwen", ChatTemplate::Qwen},
    {"qwen2.5", ChatTemplate::Qwen25}, {"llama2", ChatTemplate::Llama2},
    {"llama3", ChatTemplate::Llama3},  {"mistral", ChatTemplate::Mistral}};

/// A model directory with one of the small tokenizers.
struct ChatModel {
  TempDir folder;
  std::unique_ptr<Tokenizer> tokenizer;

  explicit ChatModel(const std::string& name, json config = json::object()) {
    folder.write("tokenizer.json", read_file(fixtures() + "/" + name + "/tokenizer.json"));
    if (name == "qwen2") config["eos_token"] = "<|im_end|>";
    if (name == "llama3") {
      config["bos_token"] = "<|begin_of_text|>";
      config["eos_token"] = "<|end_of_text|>";
    }
    folder.write("tokenizer_config.json", config.dump());
    auto loaded = Tokenizer::load(folder.path());
    EXPECT_TRUE(loaded) << loaded.error().to_string();
    tokenizer = std::move(*loaded);
  }
  Result<std::unique_ptr<Dataset>> open(const json& rows, const std::string& wanted = "auto",
                                        int64_t length = 2048) {
    return Dataset::open(
        folder.write("rows.json", rows.dump()), tokenizer.get(),
        {.max_seq_length = length, .vocab_size = tokenizer->vocab_size(), .chat_template = wanted});
  }
};

json chat(const std::string& answer = "fine") {
  return {{"messages",
           {{{"role", "user"}, {"content", "how are you"}},
            {{"role", "assistant"}, {"content", answer}}}}};
}

TEST(Chat, AKeptCheckHoldsForItsTemplateAlone) {
  ChatModel model("qwen2");
  TempDir cache;
  json row = chat();
  const json system = {{"role", "system"}, {"content", "be brief"}};
  row["messages"].insert(row["messages"].begin(), system);
  const std::string path = model.folder.write("rows.json", json::array({row}).dump());
  const auto open = [&](const std::string& wanted) {
    return Dataset::open(path, model.tokenizer.get(),
                         {.vocab_size = model.tokenizer->vocab_size(),
                          .chat_template = wanted,
                          .cache_directory = cache.path(),
                          .cached_bytes_min = 1});
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_TRUE(open("chatml"));
    const auto refused = open("mistral");
    ASSERT_FALSE(refused) << "it has no form for a system message";
    EXPECT_NE(refused.error().message.find("system"), std::string::npos);
  }
}

TEST(Chat, IdsAndLabelsEqualTransformers) {
  std::map<std::string, std::unique_ptr<ChatModel>> models;
  const json cases = json::parse(read_file(fixtures() + "/chat_oracle.json"));
  ASSERT_GT(cases.size(), 20u);
  for (const json& one : cases) {
    const std::string name = one["tokenizer"];
    if (!models.contains(name)) models[name] = std::make_unique<ChatModel>(name);
    const auto cut = chat_sample({{"messages", one["messages"]}}, *models[name]->tokenizer,
                                 kTemplates.at(one["template"]), 2048);
    ASSERT_TRUE(cut) << cut.error().to_string();
    EXPECT_EQ(json(cut->sample.input_ids), one["input_ids"]) << one["template"] << one["messages"];
    EXPECT_EQ(json(cut->sample.labels), one["labels"]) << one["template"] << one["messages"];
  }
}

TEST(Chat, ShareGptRowsAreTheSameConversations) {
  ChatModel model("qwen2");
  const json sharegpt = {
      {"conversations",
       {{{"from", "human"}, {"value", "how are you"}}, {{"from", "gpt"}, {"value", "fine"}}}}};
  const auto dataset = model.open({chat(), sharegpt}, "chatml");
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  EXPECT_EQ((*dataset)->at(0)->input_ids, (*dataset)->at(1)->input_ids);
  EXPECT_EQ((*dataset)->at(0)->labels, (*dataset)->at(1)->labels);
}

TEST(Chat, LongRowsAreCutAtTheRight) {
  ChatModel model("qwen2");
  const auto whole = model.open({chat()}, "chatml"), cut = model.open({chat()}, "chatml", 7);
  ASSERT_TRUE(whole && cut);
  auto expected = (*whole)->at(0)->input_ids;
  ASSERT_GT(expected.size(), 7u);
  expected.resize(7);
  EXPECT_EQ((*cut)->at(0)->input_ids, expected);
  EXPECT_EQ((*cut)->truncated_rows(), 1);
}

TEST(Chat, TemplateOfTheModelIsKnownByItsText) {
  const std::string text =
      "{%- for message in messages %}\n  {{- \"<|im_start|>\" + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n' }}\n{%- endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}";
  ChatModel known("qwen2", {{"chat_template", text}});
  const auto dataset = known.open({chat()});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  const auto named = known.open({chat()}, "chatml"), other = known.open({chat()}, "qwen");
  EXPECT_EQ((*dataset)->at(0)->input_ids, (*named)->at(0)->input_ids);
  EXPECT_NE((*dataset)->at(0)->input_ids, (*other)->at(0)->input_ids) << "it adds a system message";
  known.folder.write("chat_template.jinja", "{{ messages }}");
  const auto unknown = known.open({chat()});
  ASSERT_FALSE(unknown) << "the file goes before tokenizer_config.json";
  EXPECT_NE(unknown.error().hint.find("chatTemplate: chatml"), std::string::npos);
}

TEST(Chat, WhatCannotBeRenderedIsRefused) {
  ChatModel none("qwen2"), llama("llama3");
  EXPECT_FALSE(none.open({chat()})) << "no template, none named";
  const auto tokens = llama.open({chat()}, "chatml");
  ASSERT_FALSE(tokens);
  EXPECT_NE(tokens.error().message.find("has no token <|im_start|>"), std::string::npos);
  const json system = {{"messages",
                        {{{"role", "system"}, {"content", "be brief"}},
                         {{"role", "user"}, {"content", "a"}},
                         {{"role", "assistant"}, {"content", "b"}}}}};
  EXPECT_TRUE(llama.open({system}, "llama2"));
  const auto refused = llama.open({system}, "mistral");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("row 0, line 1: mistral's template has no form"),
            std::string::npos)
      << refused.error().message;
}

TEST(Chat, BadRowsNameTheirTurn) {
  ChatModel model("qwen2");
  const auto says = [&](const char* row) {
    const auto dataset = model.open({json::parse(row)}, "chatml");
    return dataset ? "" : dataset.error().message;
  };
  EXPECT_NE(says(R"({"messages": []})").find("messages: is empty"), std::string::npos);
  EXPECT_NE(says(R"({"messages": [{"role": "user", "content": "a"}]})").find("no turn of the"),
            std::string::npos);
  EXPECT_NE(says(R"({"messages": [{"role": "tool", "content": "a"}]})")
                .find("messages[0].role: is \"tool\", expected system, user or assistant"),
            std::string::npos);
  EXPECT_NE(says(R"({"conversations": [{"from": "gpt", "value": null}]})")
                .find("conversations[0].value: is null, expected text"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::data
