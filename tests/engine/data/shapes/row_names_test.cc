#include "engine/data/shapes/row_names.h"

#include <gtest/gtest.h>

#include "engine/data/shapes/row_shape.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

RowNames names(const json& columns) {
  const auto read = RowNames::of(columns, "training.datasetColumns");
  EXPECT_TRUE(read) << read.error().to_string();
  return read.value_or(RowNames());
}

std::string renamed(const RowNames& names, const char* row) {
  const auto made = names.renamed(ordered_json::parse(row));
  return made ? made->dump() : made.error().field + ": " + made.error().what;
}

TEST(RowNames, ReadsLlamaFactorysColumns) {
  const RowNames made = names({{"prompt", "q"}, {"query", "ctx"}, {"response", "a"}});
  EXPECT_EQ(renamed(made, R"({"a": "2", "q": "1", "ctx": null, "id": 7})"),
            R"({"input":null,"instruction":"1","output":"2","id":7})");
  EXPECT_EQ(renamed(made, R"({"q": "1"})"), "a: is missing, and datasetColumns names it");
  EXPECT_EQ(made.own_name("output"), "a");
  EXPECT_EQ(made.own_name("history[0]"), "history[0]");
}

TEST(RowNames, UnmappedFieldsAreNotRead) {
  EXPECT_EQ(renamed(names({{"text", "body"}}), R"({"body": "b", "text": "t"})"),
            R"x({"text":"b","text (no column of datasetColumns)":"t"})x");
}

/// dataset_text_field text: whatever else a row has, TRL reads its text, unless it has turns, a
/// completion or ids.
TEST(RowNames, ATextComesBeforeAQuestionAndItsAnswer) {
  const RowNames made = names({{"text", "text"}});
  for (const char* pair :
       {R"("instruction": "q", "output": "a")", R"("question": "q", "solution": "a")",
        R"("query": "q", "response": "a")", R"("input": "q", "target": "a")",
        R"("problem": "q", "answer": "a")", R"("turns": [])"}) {
    const auto row =
        made.renamed(ordered_json::parse(std::string("{") + pair + R"(, "text": "t", "id": 1})"));
    ASSERT_TRUE(row) << pair;
    EXPECT_EQ((*row)["text"], "t") << pair;
    EXPECT_EQ((*row)["id"], 1) << pair;
    const auto shaped = shaped_row(json::parse(row->dump()));
    ASSERT_TRUE(shaped) << pair << shaped.error().what;
    EXPECT_EQ(shaped->kind, RowKind::Text) << pair;
  }
  for (const char* row :
       {R"({"messages":[],"text":"t"})", R"({"conversations":[],"text":"t"})",
        R"({"prompt":"p","completion":"c","text":"t"})", R"({"input_ids":[1],"text":"t"})",
        R"({"chosen":"p","rejected":"c","text":"t"})", R"({"instruction":"p","output":"c"})",
        R"({"instruction":"p","output":"c","text":null})"})
    EXPECT_EQ(renamed(made, row), row);
}

TEST(RowNames, APromptWithoutAResponseIsText) {
  EXPECT_EQ(renamed(names({{"prompt", "body"}}), R"({"body": "b"})"), R"({"text":"b"})");
  EXPECT_EQ(renamed(names({{"prompt", "p"}, {"completion", "c"}}), R"({"p": "b", "c": "d"})"),
            R"({"completion":"d","prompt":"b"})");
}

TEST(RowNames, TagsRenameTurns) {
  const RowNames made = names({{"messages", "dialog"},
                               {"role_tag", "who"},
                               {"content_tag", "said"},
                               {"user_tag", "U"},
                               {"assistant_tag", "A"}});
  EXPECT_EQ(
      renamed(made,
              R"({"dialog": [{"who": "U", "said": "x", "n": 1}, {"who": "A", "said": "y"}]})"),
      R"({"messages":[{"role":"user","content":"x","n":1},{"role":"assistant","content":"y"}]})");
}

TEST(RowNames, ReadsEntriesOfDatasetInfo) {
  const auto entry = [](const json& value) { return RowNames::of_entry(value, "info: x"); };
  EXPECT_TRUE(entry({{"file_name", "a"}})->empty());
  const RowNames sharegpt = entry({{"formatting", "sharegpt"}}).value();
  EXPECT_EQ(renamed(sharegpt, R"({"conversations": [{"from": "human", "value": "x"}]})"),
            R"({"messages":[{"role":"user","content":"x"}]})");
  const RowNames tools =
      entry({{"formatting", "sharegpt"}, {"columns", {{"messages", "conversations"}}}}).value();
  EXPECT_EQ(renamed(tools, R"({"conversations": [{"from": "observation", "value": "x"}]})"),
            R"({"messages":[{"role":"tool","content":"x"}]})");
  const RowNames openai = entry({{"formatting", "sharegpt"},
                                 {"columns", {{"messages", "messages"}}},
                                 {"tags",
                                  {{"role_tag", "role"},
                                   {"content_tag", "content"},
                                   {"user_tag", "user"},
                                   {"assistant_tag", "assistant"}}}})
                              .value();
  EXPECT_EQ(renamed(openai, R"({"messages": [{"role": "user", "content": "x"}]})"),
            R"({"messages":[{"role":"user","content":"x"}]})");
}

TEST(RowNames, KtosTagIsTheLabel) {
  const json entry = {{"formatting", "sharegpt"},
                      {"columns", {{"messages", "messages"}, {"kto_tag", "good"}}},
                      {"tags", {{"role_tag", "role"}, {"content_tag", "content"}}}};
  const RowNames kto = RowNames::of_entry(entry, "x").value();
  EXPECT_EQ(renamed(kto, R"({"messages": [], "good": false})"), R"({"label":false,"messages":[]})");
  EXPECT_EQ(kto.own_name("label"), "good");
}

TEST(RowNames, RefusesUnknownColumnsAndMedia) {
  const auto said = [](const json& columns) {
    const auto read = RowNames::of(columns, "training.datasetColumns");
    return read ? std::string() : read.error().to_string();
  };
  EXPECT_NE(said({{"promt", "q"}}).find("\"promt\" is not a column or a tag"), std::string::npos);
  EXPECT_NE(said({{"images", "q"}}).find("media"), std::string::npos);
  EXPECT_NE(said({{"prompt", 3}}).find("is 3, expected a field's name"), std::string::npos);
  EXPECT_FALSE(RowNames::of_entry({{"formatting", "xml"}}, "x"));
  EXPECT_FALSE(RowNames::of_entry({{"formatting", 3}}, "x"));
  EXPECT_FALSE(RowNames::of_entry({{"columns", 3}}, "x"));
  EXPECT_TRUE(RowNames::of_entry({{"ranking", "no"}, {"formatting", nullptr}}, "x"));
}

}  // namespace
}  // namespace dsj::data
