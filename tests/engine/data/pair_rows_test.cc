// Preference rows: their shapes, and their tokens against TRL's (tests/fixtures/preference).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "engine/data/batches/batch.h"
#include "engine/data/dataset.h"
#include "engine/data/rows.h"
#include "engine/data/shapes/pair_shape.h"
#include "test_paths.h"

namespace dsj::data {
namespace {

using nlohmann::json;

std::string preference_fixtures() {
  return std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/preference";
}

class PairRows : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::load(preference_fixtures());
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    tokenizer_ = std::move(*loaded);
    path_ = testing::TempDir() + "pairs-" + std::to_string(getpid()) + ".jsonl";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Result<std::unique_ptr<Dataset>> open(const json& rows, DatasetOptions options = {}) {
    std::ofstream file(path_);
    for (const json& row : rows) file << row.dump() << "\n";
    file.close();
    options.aim = RowAim::Pairs;
    options.vocab_size = 128;
    return Dataset::open(path_, tokenizer_.get(), options);
  }
  Sample sample(const json& row, DatasetOptions options = {}) {
    const auto opened = open(json::array({row}), options);
    if (!opened) {
      ADD_FAILURE() << opened.error().to_string();
      return {};
    }
    return (*opened)->at(0).value();
  }
  std::string problem(const json& row) {
    const auto opened = open(json::array({row}));
    return opened ? std::string() : opened.error().to_string();
  }
  std::string text(std::span<const int32_t> ids) const { return tokenizer_->decode(ids, false); }
  /// The learned text of the sample's two rows.
  std::pair<std::string, std::string> answers(const Sample& sample) const {
    std::string found[2];
    for (size_t at = 0; at < sample.labels.size(); ++at)
      if (sample.labels[at] != kIgnoredLabel)
        found[static_cast<int64_t>(at) >= sample.second] +=
            text(std::span(sample.input_ids).subspan(at, 1));
    return {found[0], found[1]};
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::string path_;
};

TEST_F(PairRows, TokensEqualTrls) {
  const json oracle = json::parse(std::ifstream(preference_fixtures() + "/steps.json"));
  int compared = 0;
  for (const json& one : oracle["cases"]) {
    if (one["tokens"].is_null()) continue;
    json rows = json::array();
    std::ifstream file(preference_fixtures() + "/" + one["rows"].get<std::string>() + ".jsonl");
    for (std::string line; std::getline(file, line);) rows.push_back(json::parse(line));
    const int64_t longest = one["max_length"];
    const auto opened = open(rows, {.max_seq_length = longest});
    ASSERT_TRUE(opened) << opened.error().to_string();
    for (size_t i = 0; i < one["tokens"].size(); ++i) {
      const json& theirs = one["tokens"][i];
      const Sample own = (*opened)->at(static_cast<int64_t>(i)).value();
      std::vector<int32_t> ids, labels;
      for (const char* answer : {"chosen_ids", "rejected_ids"}) {
        auto row = theirs["prompt_ids"].get<std::vector<int32_t>>();
        std::vector<int32_t> learned(row.size(), kIgnoredLabel);
        for (const json& id : theirs[answer]) {
          row.push_back(id);
          learned.push_back(id);
        }
        row.resize(std::min(row.size(), static_cast<size_t>(longest)));
        learned.resize(row.size());
        ids.insert(ids.end(), row.begin(), row.end());
        labels.insert(labels.end(), learned.begin(), learned.end());
        if (std::string_view(answer) == "chosen_ids") {
          EXPECT_EQ(own.second, std::ssize(row));
        }
      }
      EXPECT_EQ(own.input_ids, ids) << one["rows"] << " row " << i;
      EXPECT_EQ(own.labels, labels) << one["rows"] << " row " << i;
      ++compared;
    }
  }
  EXPECT_GE(compared, 100);
}

TEST_F(PairRows, ReadsTheShapesOfPublishedSets) {
  const std::pair<std::string, std::string> said = {"yes<|im_end|>\n", "no<|im_end|>\n"};
  const std::pair<std::string, std::string> plain = {"yes<|endoftext|>", "no<|endoftext|>"};
  const json user = {{"role", "user"}, {"content", "q"}},
             yes = {{"role", "assistant"}, {"content", "yes"}},
             no = {{"role", "assistant"}, {"content", "no"}};
  const json sharegpt_user = {{"from", "human"}, {"value", "q"}},
             sharegpt_yes = {{"from", "gpt"}, {"value", "yes"}},
             sharegpt_no = {{"from", "gpt"}, {"value", "no"}};
  EXPECT_EQ(answers(sample({{"prompt", "q? "}, {"chosen", "yes"}, {"rejected", "no"}})), plain);
  EXPECT_EQ(answers(sample({{"prompt", json::array({user})},
                            {"chosen", json::array({yes})},
                            {"rejected", json::array({no})}})),
            said);
  EXPECT_EQ(answers(sample(
                {{"chosen", json::array({user, yes})}, {"rejected", json::array({user, no})}})),
            said);
  // UltraFeedback: the prompt is a text, and also in the turns; scores are not read.
  EXPECT_EQ(answers(sample({{"prompt", "q"},
                            {"chosen", json::array({user, yes})},
                            {"rejected", json::array({user, no})},
                            {"messages", json::array({user, yes})},
                            {"score_chosen", 8.5},
                            {"score_rejected", 7.0}})),
            said);
  EXPECT_EQ(
      answers(sample(
          {{"prompt", "q"}, {"chosen", json::array({yes})}, {"rejected", json::array({no})}})),
      said);
  // LLaMA-Factory's dpo_en_demo.json, and its alpaca form; Intel's orca_dpo_pairs.
  EXPECT_EQ(answers(sample({{"conversations", json::array({sharegpt_user})},
                            {"chosen", sharegpt_yes},
                            {"rejected", sharegpt_no}})),
            said);
  EXPECT_EQ(
      answers(sample({{"instruction", "q"}, {"input", ""}, {"chosen", "yes"}, {"rejected", "no"}})),
      plain);
  EXPECT_EQ(
      answers(sample({{"system", "s"}, {"question", "q"}, {"chosen", "yes"}, {"rejected", "no"}})),
      plain);
  // ms-swift's: the chosen answer ends messages, or is response.
  EXPECT_EQ(answers(sample({{"messages", json::array({user, yes})}, {"rejected_response", "no"}})),
            said);
  EXPECT_EQ(answers(sample({{"messages", json::array({user, yes})},
                            {"rejected_messages", json::array({user, no})}})),
            said);
  EXPECT_EQ(answers(sample({{"query", "q"}, {"response", "yes"}, {"rejected_response", "no"}})),
            plain);
  const DatasetOptions named{
      .columns = {{"prompt", "ask"}, {"chosen", "good"}, {"rejected", "bad"}}};
  EXPECT_EQ(answers(sample({{"ask", "q"}, {"good", "yes"}, {"bad", "no"}}, named)), plain);
}

/// The turns before the answers may be in the answers, beside them, or both; messages may even hold
/// the chosen answer.
TEST_F(PairRows, APromptThatIsRepeatedCountsOnce) {
  std::mt19937 draw(3);
  const auto below = [&](unsigned n) { return draw() % n; };
  const auto turn = [&](const char* role, bool sharegpt) {
    const std::string text(1, static_cast<char>('a' + below(26)));
    if (!sharegpt) return json{{"role", role}, {"content", text}};
    const bool user = std::string_view(role) == "user";
    return json{{"from", user ? "human" : "gpt"}, {"value", text}};
  };
  for (int round = 0; round < 200; ++round) {
    const bool sharegpt = below(2) == 0;
    json prompt = json::array();
    if (!sharegpt && below(2) == 0) prompt.push_back(turn("system", false));
    const size_t systems = prompt.size();
    for (unsigned pairs = below(3); pairs > 0; --pairs) {
      prompt.push_back(turn("user", sharegpt));
      prompt.push_back(turn("assistant", sharegpt));
    }
    prompt.push_back(turn("user", sharegpt));
    json yes = turn("assistant", sharegpt), no = yes;
    yes[sharegpt ? "value" : "content"] = "yes";
    no[sharegpt ? "value" : "content"] = "no";
    const auto behind = [](json turns, const json& answer) {
      turns.push_back(answer);
      return turns;
    };
    json from = prompt;  // the answers may lack the system's turn
    if (systems > 0 && below(2) == 0) from.erase(0);
    const char* list = sharegpt ? "conversations" : "messages";
    const json whole = {{"chosen", behind(from, yes)}, {"rejected", behind(from, no)}};
    json with_prompt = whole, with_chosen = whole, beside = {{list, prompt}};
    with_prompt[below(2) == 0 && !sharegpt ? "prompt" : list] = prompt;
    with_chosen[list] = behind(prompt, yes);
    beside["chosen"] = below(2) == 0 ? yes : json::array({yes});
    beside["rejected"] = no;
    const Sample expected = sample(beside);
    for (const json& row : {with_prompt, with_chosen, from == prompt ? whole : with_chosen}) {
      const Sample found = sample(row);
      EXPECT_EQ(found.input_ids, expected.input_ids) << row;
      EXPECT_EQ(found.labels, expected.labels) << row;
    }
  }
}

TEST_F(PairRows, AnImplicitPromptEqualsTrls) {
  EXPECT_EQ(common_prompt("ask: yes", "ask: no"), 4u) << "without its last space";
  EXPECT_EQ(common_prompt("ask:yes", "ask:no"), 4u);
  EXPECT_EQ(common_prompt("abc", "abcd"), 2u) << "the last character stays with the answer";
  EXPECT_EQ(common_prompt("x", "y"), 0u);
  EXPECT_EQ(common_prompt("a\xC3\xA4", "a\xC3\xB6"), 1u) << "whole characters";
}

TEST_F(PairRows, RowsThatAreNotPairsAreRefusedByName) {
  EXPECT_NE(problem({{"prompt", "q"}, {"completion", "a"}}).find("has no chosen"),
            std::string::npos);
  EXPECT_NE(
      problem({{"prompt", "q"}, {"chosen", "a"}, {"rejected", ""}}).find("rejected: is empty"),
      std::string::npos);
  EXPECT_NE(problem({{"prompt", "q"}, {"chosen", "a"}, {"rejected", json::array({json::object()})}})
                .find("rejected"),
            std::string::npos);
  EXPECT_NE(problem({{"prompt", "q"}, {"chosen", "a"}, {"rejected", "b"}, {"images", {"x.png"}}})
                .find("images"),
            std::string::npos);
  EXPECT_NE(
      problem({{"prompt", 3}, {"chosen", "a"}, {"rejected", "b"}}).find("prompt: is a number"),
      std::string::npos);
  EXPECT_NE(
      problem({{"messages", json::array()}, {"rejected_response", "b"}}).find("has no chosen"),
      std::string::npos);
  EXPECT_NE(
      problem({{"messages", json::array({"a"})}, {"rejected_response", "b"}}).find("has no chosen"),
      std::string::npos);
  const json one = json::array({{{"role", "assistant"}, {"content", "a"}}}),
             two = json::array({{{"role", "assistant"}, {"content", "b"}}});
  EXPECT_NE(problem({{"chosen", one}, {"rejected", two}}).find("does not begin"),
            std::string::npos);
}

TEST_F(PairRows, PromptsAndRowsAreCutByTheArguments) {
  const json row = {{"prompt", "0123456789"}, {"chosen", "ab"}, {"rejected", "cdefgh"}};
  const auto rows_of = [&](DatasetOptions options) {
    const Sample made = sample(row, options);
    const auto second = static_cast<size_t>(made.second);
    return std::pair(text(std::span(made.input_ids).first(second)),
                     text(std::span(made.input_ids).subspan(second)));
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(rows_of({.max_prompt_length = 4}),
            Pair("6789ab<|endoftext|>", "6789cdefgh<|endoftext|>"));
  EXPECT_EQ(rows_of({.max_seq_length = 12}), Pair("0123456789ab", "0123456789cd"));
  EXPECT_EQ(rows_of({.max_seq_length = 5, .keeps_end = true}),
            Pair("89ab<|endoftext|>", "efgh<|endoftext|>"));
}

TEST_F(PairRows, ABatchHasTwoRowsAndTheirPartsPerPair) {
  Sample pair = sample({{"prompt", "abc"}, {"chosen", "d"}, {"rejected", "ef"}});
  pair.reference = {-1.5, -2.5};
  const Batch batch = collate(std::vector{pair, pair});
  EXPECT_EQ(batch.row_lengths, (std::vector<int64_t>{5, 6, 5, 6}));
  ASSERT_EQ(batch.parts.size(), 4u);
  EXPECT_EQ(batch.parts[0].targets, 2);
  EXPECT_EQ(batch.parts[3].targets, 3);
  EXPECT_EQ(batch.parts[2].reference, -1.5);
  EXPECT_EQ(batch.parts[3].reference, -2.5);
  const Sample learned =
      sample({{"prompt", "abc"}, {"chosen", "d"}, {"rejected", "ef"}}, {.prompt_learned = true});
  const Batch odds = collate(std::vector{learned});
  ASSERT_EQ(odds.parts.size(), 3u);
  EXPECT_EQ(odds.parts[0].targets, 2) << "nothing predicts the first token";
  EXPECT_EQ(odds.parts[1].targets, 2);
  EXPECT_EQ(odds.parts[2].targets, 3);
  // Without a prompt an answer's first token counts as in TRL's mask, but is not predicted.
  const Batch bare =
      collate(std::vector{sample({{"prompt", ""}, {"chosen", "d"}, {"rejected", "ef"}})});
  EXPECT_EQ(bare.parts[0].tokens, 2);
  EXPECT_EQ(bare.parts[0].targets, 1);
}

}  // namespace
}  // namespace dsj::data
