// DatasetOptions::default_system: a row without a system text has the tokens of the same row with that text.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/data/dataset.h"
#include "test_paths.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr char kSystem[] = "Answer in one word.";

class DefaultSystem : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::load(std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/preference");
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    tokenizer_ = std::move(*loaded);
    path_ = testing::TempDir() + "system-" + std::to_string(getpid()) + ".jsonl";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  /// The samples of one row: tokens and labels.
  std::pair<std::vector<int32_t>, std::vector<int32_t>> tokens(const json& row, RowAim aim,
                                                               const std::string& chat_template,
                                                               const std::string& system) {
    std::ofstream(path_) << row.dump() << "\n";
    DatasetOptions options{.aim = aim, .vocab_size = 264, .chat_template = chat_template};
    options.default_system = system;
    const auto rows = Dataset::open(path_, tokenizer_.get(), options);
    if (!rows) {
      ADD_FAILURE() << rows.error().to_string() << " " << row.dump();
      return {};
    }
    const Sample sample = (*rows)->at(0).value();
    return {sample.input_ids, sample.labels};
  }
  std::string word() {
    std::string text;
    for (int i = std::uniform_int_distribution(1, 6)(random_); i > 0; --i)
      text += static_cast<char>('a' + std::uniform_int_distribution(0, 25)(random_));
    return text;
  }
  json turn(const char* role) { return {{"role", role}, {"content", word()}}; }

  std::mt19937 random_{7};
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string path_;
};

TEST_F(DefaultSystem, IsTheSystemTextOfRowsWithoutOne) {
  for (int draw = 0; draw < 40; ++draw) {
    const json pair = {{"prompt", json::array({turn("user")})},
                       {"chosen", json::array({turn("assistant")})},
                       {"rejected", json::array({turn("assistant")})}};
    const json marked = {{"prompt", json::array({turn("user")})},
                         {"completion", json::array({turn("assistant")})},
                         {"label", draw % 2 == 0}};
    const json shares = {
        {"conversations",
         {{{"from", "human"}, {"value", word()}}, {{"from", "gpt"}, {"value", word()}}}}};
    struct Case {
      json row;
      RowAim aim;
      const char* chat_template;
    };
    for (const Case& c : std::vector<Case>{
             {{{"instruction", word()}, {"output", word()}}, RowAim::Answers, "auto"},
             {{{"instruction", word()}, {"input", word()}, {"output", word()}},
              RowAim::Answers,
              "chatml"},
             {{{"messages", {turn("user"), turn("assistant"), turn("user"), turn("assistant")}}},
              RowAim::Answers,
              "chatml"},
             {{{"prompt", json::array({turn("user")})},
               {"completion", json::array({turn("assistant")})}},
              RowAim::Answers,
              "chatml"},
             {shares, RowAim::Answers, "chatml"},
             {pair, RowAim::Pairs, "chatml"},
             {{{"instruction", word()}, {"chosen", word()}, {"rejected", word()}},
              RowAim::Pairs,
              "auto"},
             {marked, RowAim::Marked, "chatml"}}) {
      json with = c.row;
      with["system"] = kSystem;
      const auto expected = tokens(with, c.aim, c.chat_template, "");
      EXPECT_EQ(tokens(c.row, c.aim, c.chat_template, kSystem), expected) << c.row.dump();
      EXPECT_NE(tokens(c.row, c.aim, c.chat_template, ""), expected) << c.row.dump();
      EXPECT_EQ(tokens(with, c.aim, c.chat_template, "Not this."), expected) << with.dump();
    }
  }
}

TEST_F(DefaultSystem, LeavesOtherRowsAsTheyAre) {
  for (const json& row :
       {json{{"messages", {turn("system"), turn("user"), turn("assistant")}}},
        json{{"text", "a whole text"}}, json{{"prompt", "a question"}, {"completion", "an answer"}},
        json{{"input_ids", {1, 2, 3}}, {"labels", {1, 2, 3}}}}) {
    EXPECT_EQ(tokens(row, RowAim::Answers, "auto", kSystem),
              tokens(row, RowAim::Answers, "auto", ""))
        << row.dump();
  }
}

}  // namespace
}  // namespace dsj::data
