// Every leaf of a row is in its tokens or labels, refused by name, or reported as unread.
#include "engine/data/shapes/row_fields.h"

#include <gtest/gtest.h>

#include <sstream>

#include "common/files/memory_files.h"
#include "engine/data/dataset.h"
#include "engine/data/shapes/prompt.h"
#include "engine/data/shapes/row_shape.h"
#include "tests/engine/data/qwen_tokenizer.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

Result<std::unique_ptr<Dataset>> open_rows(const json& rows, const std::string& chat_template) {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced("rows.json", rows.dump()));
  return Dataset::open(
      files, "rows.json", &qwen_tokenizer(),
      {.vocab_size = qwen_tokenizer().vocab_size(), .chat_template = chat_template});
}
/// Opens rows with ChatML for those that need a template.
Result<std::unique_ptr<Dataset>> open_rows(const json& rows) {
  const auto first = shaped_row(rows[0]);
  return open_rows(rows, first && first->kind == RowKind::Alpaca ? "auto" : "chatml");
}

std::string refusal(const json& row) {
  const auto dataset = open_rows(json::array({row}));
  return dataset ? "" : dataset.error().message;
}

json turn(const std::string& role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}
json chat_row() {
  return {{"messages", {turn("user", "hi"), turn("assistant", "yo")}}};
}

std::string text_of_row(const json& row) {
  const auto dataset = open_rows(json::array({row}));
  EXPECT_TRUE(dataset) << dataset.error().to_string();
  return dataset ? qwen_tokenizer().decode((*dataset)->at(0)->input_ids, false) : "";
}

/// The learned text.
std::string learned_of_row(const json& row) {
  const auto dataset = open_rows(json::array({row}));
  EXPECT_TRUE(dataset) << dataset.error().to_string();
  const Sample sample = (*dataset)->at(0).value();
  std::vector<int32_t> ids;
  for (const int32_t label : sample.labels)
    if (label != kIgnoredLabel) ids.push_back(label);
  return qwen_tokenizer().decode(ids, false);
}

TEST(RowFields, ASystemTextBesideTheTurnsIsTheFirstTurn) {
  json beside = {{"system", "Be brief."},
                 {"conversations",
                  {{{"from", "human"}, {"value", "hi"}}, {{"from", "gpt"}, {"value", "yo"}}}}};
  EXPECT_EQ(text_of_row(beside),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\nyo<|im_end|>\n");
  beside["system"] = nullptr;
  EXPECT_EQ(text_of_row(beside), text_of_row(chat_row()));
  beside["system"] = 3;
  EXPECT_NE(refusal(beside).find("system: is a number, expected text"), std::string::npos);
}

TEST(RowFields, AlpacasSystemAndHistoryAreInThePrompt) {
  const json row = {{"instruction", "And in winter?"},
                    {"input", ""},
                    {"output", "At nine."},
                    {"system", "You are a desk."},
                    {"history", json::array({json::array({"When?", "At seven."}),
                                             json::array({"Why?", "So."})})}};
  const std::string eos = "<|im_end|>";
  EXPECT_EQ(text_of_row(row),
            "You are a desk.\n\n### Instruction:\nWhen?\n\n### Response:At seven." + eos +
                "\n\n### Instruction:\nWhy?\n\n### Response:So." + eos +
                "\n\n### Instruction:\nAnd in winter?\n\n### Response:At nine." + eos);
  EXPECT_EQ(learned_of_row(row), "At seven." + eos + "So." + eos + "At nine." + eos);
  EXPECT_NE(
      refusal(
          {{"instruction", "a"}, {"output", "b"}, {"history", json::array({json::array({"one"})})}})
          .find("history[0]: is not [question, answer]"),
      std::string::npos);
  const json nulls = {
      {"instruction", "a"}, {"input", nullptr}, {"output", "b"}, {"history", nullptr}};
  EXPECT_EQ(text_of_row(nulls), alpaca_prompt("a") + "b" + eos);
}

TEST(RowFields, AWeightOfZeroExcludesATurnFromTheLoss) {
  for (const auto& [field, no, yes] :
       {std::tuple{"weight", json(0), json(1)}, std::tuple{"train", json(false), json(true)},
        std::tuple{"loss", json(false), json(true)},
        std::tuple{"loss_weight", json(0.0), json(1.0)}}) {
    json row = {{"messages",
                 {turn("user", "a"), turn("assistant", "bad"), turn("user", "c"),
                  turn("assistant", "good")}}};
    const std::string text = text_of_row(row);
    row["messages"][0][field] = no;
    row["messages"][1][field] = no;
    row["messages"][3][field] = yes;
    EXPECT_EQ(text_of_row(row), text);
    EXPECT_EQ(learned_of_row(row), "good<|im_end|>");
    row["messages"][1][field] = 0.5;
    EXPECT_NE(refusal(row).find(std::string("messages[1].") + field + ": is 0.5"),
              std::string::npos);
    row["messages"][1][field] = no;
    row["messages"][0][field] = yes;
    EXPECT_NE(refusal(row).find("only turns of the assistant"), std::string::npos);
  }
}

TEST(RowFields, ContentInPartsIsJoinedToText) {
  json row = chat_row();
  row["messages"][0]["content"] = {{{"type", "text"}, {"text", "h"}},
                                   {{"type", "text"}, {"text", "i"}}};
  EXPECT_EQ(text_of_row(row), text_of_row(chat_row()));
  row["messages"][0]["content"][1] = {{"type", "image_url"}, {"image_url", {{"url", "a.png"}}}};
  EXPECT_NE(refusal(row).find("messages[0].content[1]: is a part of type \"image_url\""),
            std::string::npos);
}

TEST(RowFields, RowsOfAnotherObjectiveAreRefusedByName) {
  for (const auto& [field, value] : {std::pair{"chosen", json(turn("assistant", "a"))},
                                     {"rejected", json("b")},
                                     {"label", json(false)},
                                     {"kto_tag", json(false)},
                                     {"images", json::array({"a.png"})},
                                     {"image", json("a.png")},
                                     {"videos", json::array({"a.mp4"})},
                                     {"audios", json::array({"a.wav"})},
                                     {"preferred_output", json::array({turn("assistant", "a")})}}) {
    json row = chat_row();
    row[field] = value;
    EXPECT_NE(refusal(row).find(std::string("row 0, line 1: ") + field + ": "), std::string::npos)
        << field << ": " << refusal(row);
    const json only = {{"prompt", "a"}, {field, value}};
    EXPECT_NE(refusal(only).find(std::string(field) + ": "), std::string::npos) << refusal(only);
  }
  for (const auto& [field, value] : {std::pair{"function_call", json{{"name", "f"}}},
                                     {"train_detail", json::array({{{"begin_offset", 0}}})},
                                     {"audio", json{{"id", "x"}}}}) {
    json row = chat_row();
    row["messages"][1]["content"] = nullptr;
    row["messages"][1][field] = value;
    EXPECT_NE(refusal(row).find(std::string("messages[1].") + field), std::string::npos)
        << refusal(row);
  }
  json tools = chat_row(), calls = chat_row();
  tools["tools"] = "[{}]";
  calls["messages"][1]["tool_calls"] = json::array({{{"id", "c"}}});
  EXPECT_NE(refusal(tools).find("row 0, line 1: tools: the chat template does not support"),
            std::string::npos);
  EXPECT_NE(refusal(calls).find("tool_calls: the chat template does not support"),
            std::string::npos);
}

TEST(RowFields, EmptyFieldsCountAsMissing) {
  json row = chat_row();
  for (const char* field : {"chosen", "images", "tools", "system", "label", "id"})
    row[field] = nullptr;
  row["images"] = json::array();
  row["tools"] = "";
  row["messages"][1]["tool_calls"] = nullptr;
  const auto dataset = open_rows(json::array({row}));
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  EXPECT_EQ((*dataset)->notes(), std::vector<std::string>{});
}

TEST(RowFields, UnreadFieldsAreNamedOnceWithTheirCount) {
  json one = chat_row(), two = chat_row();
  one["id"] = 7;
  two["id"] = 8;
  two["source"] = {{"a", 1}};
  two["messages"][0]["name"] = "Ann";
  two["messages"][1]["name"] = "Bob";
  two["messages"][0]["content"] = "<image>What is it?";
  const auto dataset = open_rows(json::array({one, two, chat_row()}));
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  EXPECT_EQ((*dataset)->notes(),
            std::vector<std::string>{
                "these fields of its rows are not read: id (2 rows), source (1 row), "
                "messages[].name (1 row), <image> in messages[].content (1 row)"});
  EXPECT_EQ(open_rows(json::array({{{"instruction", "a"}, {"output", "b"}, {"text", "ab"}}}))
                .value()
                ->notes()
                .back(),
            "these fields of its rows are not read: text (1 row)");
  EXPECT_EQ(open_rows(json::array({{{"input_ids", {1}}, {"labels", {1}}, {"length", 1}}}))
                .value()
                ->notes()
                .back(),
            "these fields of its rows are not read: length (1 row)");
}

/// The rows are opened with chatml.
TEST(RowFields, ATemplateForRowsWithoutMessagesIsReported) {
  EXPECT_EQ(open_rows(json::array({{{"input_ids", {1}}, {"labels", {1}}}})).value()->notes(),
            std::vector<std::string>{"its rows have no messages: chatTemplate chatml is not used"});
  EXPECT_TRUE(open_rows(json::array({chat_row()})).value()->notes().empty());
}

/// A named template renders questions and answers as LLaMA-Factory does: drawn rows give the
/// tokens and targets of the same turns as messages.
TEST(RowFields, ANamedTemplateRendersQuestionsAndAnswers) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Lcg r(seed);
    const auto word = [&] { return "w" + std::to_string(r.below(1000)); };
    json row = {{"instruction", word()}, {"output", word()}}, turns = json::array();
    json chat = json::object();
    if (r.below(3) == 0) row["system"] = chat["system"] = word();
    if (r.below(3) == 0) {
      row["history"] = json::array({json::array({word(), word()})});
      turns = {turn("user", row["history"][0][0]), turn("assistant", row["history"][0][1])};
    }
    std::string question = row["instruction"];
    if (r.below(2) == 0) {
      row["input"] = word();
      question += "\n" + row["input"].get<std::string>();
    }
    turns.push_back(turn("user", question));
    turns.push_back(turn("assistant", row["output"]));
    chat["messages"] = turns;
    const auto made = open_rows(json::array({row}), "chatml");
    const auto expected = open_rows(json::array({chat}), "chatml");
    ASSERT_TRUE(made && expected) << row;
    const Sample one = (*made)->at(0).value(), other = (*expected)->at(0).value();
    EXPECT_EQ(one.input_ids, other.input_ids) << row;
    EXPECT_EQ(one.labels, other.labels) << row;
    EXPECT_EQ((*made)->notes(), std::vector<std::string>{});
  }
  const json bad = {{"instruction", "a"}, {"output", 3}};
  EXPECT_NE(open_rows(json::array({bad}), "chatml").error().message.find("output: is a number"),
            std::string::npos);
}

TEST(RowFields, TheHintExtractsRowsBelowAField) {
  EXPECT_NE(refusal({{"data", json::array({chat_row()})}, {"version", 1}})
                .find("jq -c '.data[]' FILE > rows.jsonl"),
            std::string::npos);
  EXPECT_EQ(refusal({{"tags", {"a"}}}).find("jq"), std::string::npos);
}

/// json.dumps writes NaN for a missing value of pandas.
TEST(RowFields, PythonsNaNCountsAsAbsent) {
  MemoryFiles files;
  ASSERT_TRUE(files.write_synced(
      "rows.jsonl",
      "{\"instruction\": \"a\", \"input\": NaN, \"output\": \"b\", \"score\": -Infinity}\n"
      "{\"instruction\": \"a\", \"output\": NaN}\n"));
  const auto rows = Dataset::open(files, "rows.jsonl", &qwen_tokenizer(),
                                  {.vocab_size = qwen_tokenizer().vocab_size()});
  ASSERT_FALSE(rows);
  EXPECT_NE(rows.error().message.find("1 of 2 rows are bad"), std::string::npos);
  EXPECT_NE(rows.error().message.find("row 1, line 2: output: is null"), std::string::npos)
      << rows.error().message;
}

// ---- the rule

struct Leaf {
  json::json_pointer place;
  std::string name;  ///< "messages[].name"
};

void leaves(const json& value, const json::json_pointer& place, const std::string& name,
            std::vector<Leaf>& out) {
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items())
      leaves(inner, place / key, name.empty() ? key : name + "." + key, out);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) leaves(value[i], place / i, name + "[]", out);
  } else if (!value.is_null()) {
    out.push_back({place, name});
  }
}

json drawn_row(Lcg& r) {
  const auto word = [&] { return "w" + std::to_string(r.below(1000)); };
  const auto maybe = [&](json& object, const char* field, const json& value) {
    if (r.below(3) == 0) object[field] = value;
  };
  json row;
  const uint32_t shape = r.below(8);
  if (shape == 0) {
    row = {{"question", word()}, {"response", word()}};
    maybe(row, "context", word());
  } else if (shape == 1) {
    row = {{"prompt", word()}, {"completion", word()}};
  } else if (shape == 2) {
    row = {{"text", word()}};
  } else if (shape == 3) {
    row["segments"] = {{{"text", word()}, {"label", r.below(2) == 0}},
                       {{"text", word()}, {"label", true}}};
  } else if (shape < 6) {
    row = {{"instruction", word()}, {"output", word()}};
    maybe(row, "input", word());
    maybe(row, "history", json::array({json::array({word(), word()})}));
  } else {
    const bool sharegpt = r.below(2) == 0;
    json list = json::array();
    const uint32_t pairs = 1 + r.below(3);
    if (r.below(4) == 0)
      list.push_back(
          {{sharegpt ? "from" : "role", "system"}, {sharegpt ? "value" : "content", word()}});
    for (uint32_t i = 0; i < 2 * pairs; ++i) {
      json one = {{sharegpt ? "from" : "role", i % 2 == 0 ? "user" : "assistant"},
                  {sharegpt ? "value" : "content", word()}};
      if (i % 2 == 1) maybe(one, "weight", r.below(2));
      if (i % 2 == 1 && r.below(4) == 0) maybe(one, "train", r.below(2) == 0);
      if (r.below(6) == 0) maybe(one, "name", word());
      if (r.below(9) == 0) maybe(one, "tool_calls", json::array({{{"id", word()}}}));
      list.push_back(one);
    }
    row[sharegpt ? "conversations" : "messages"] = list;
  }
  maybe(row, "system", word());
  maybe(row, "id", r.below(100));
  maybe(row, "meta", json{{"a", word()}, {"b", {1, 2}}});
  if (r.below(8) == 0) maybe(row, "chosen", word());
  if (r.below(8) == 0) maybe(row, "label", r.below(2) == 0);
  if (r.below(8) == 0) maybe(row, "images", json::array({word()}));
  return row;
}

TEST(RowFields, EveryLeafOfADrawnRowIsTokenizedOrHasAnEffectOrIsNamed) {
  int in_tokens = 0, named = 0, refused = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Lcg r(seed);
    const json row = drawn_row(r);
    const auto dataset = open_rows(json::array({row}));
    std::vector<Leaf> all;
    leaves(row, json::json_pointer(), "", all);
    if (!dataset) {  // refused by the name of a field of the row
      const std::string& says = dataset.error().message;
      const bool named_one = std::ranges::any_of(all, [&](const Leaf& leaf) {
        std::istringstream parts(leaf.name);  // "messages[].name": messages[], name
        for (std::string part; std::getline(parts, part, '.');)
          if (says.find(part.substr(0, part.find('[')) + ": ") != std::string::npos) return true;
        return false;
      });
      EXPECT_TRUE(named_one) << row << says;
      ++refused;
      continue;
    }
    const auto sample = (*dataset)->at(0).value();
    const auto unread = unread_fields(shaped_row(row)->row, (*dataset)->kind());
    for (const Leaf& leaf : all) {
      json other = row;
      json& value = other[leaf.place];
      if (value.is_string()) {
        value = value.get<std::string>() + "x";
      } else if (value.is_boolean()) {
        value = !value.get<bool>();
      } else {
        value = value == json(0) ? 1 : 0;
      }
      const auto changed = open_rows(json::array({other}));
      const bool acts = !changed || (*changed)->at(0)->input_ids != sample.input_ids ||
                        (*changed)->at(0)->labels != sample.labels;
      const bool told = std::ranges::any_of(unread, [&](const std::string& name) {
        return leaf.name == name || leaf.name.starts_with(name + ".") ||
               leaf.name.starts_with(name + "[");
      });
      // If both fields exclude a turn, it remains excluded when one changes.
      const bool twice = leaf.name.ends_with(".weight") || leaf.name.ends_with(".train");
      EXPECT_TRUE(acts || told || twice) << leaf.name << " of " << row;
      EXPECT_FALSE(told && acts) << leaf.name << " of " << row;
      in_tokens += acts;
      named += told;
    }
  }
  EXPECT_GT(in_tokens, 1000);
  EXPECT_GT(named, 300);
  EXPECT_GT(refused, 30);
}

}  // namespace
}  // namespace dsj::data
