// Marked answers: their shapes, and their tokens against TRL's KTOTrainer (tests/fixtures/preference/kto.json).
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"
#include "engine/data/batches/batch.h"
#include "engine/data/dataset.h"
#include "test_paths.h"

namespace dsj::data {
namespace {

using nlohmann::json;

std::string marked_fixtures() {
  return std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/preference/";
}

class MarkedRows : public testing::Test {
 protected:
  void SetUp() override {
    auto loaded = Tokenizer::load(marked_fixtures());
    ASSERT_TRUE(loaded) << loaded.error().to_string();
    tokenizer_ = std::move(*loaded);
    path_ = testing::TempDir() + "marked-" + std::to_string(getpid()) + ".jsonl";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Result<std::unique_ptr<Dataset>> open(const json& rows, DatasetOptions options = {}) {
    std::ofstream file(path_);
    for (const json& row : rows) file << row.dump() << "\n";
    file.close();
    return open_file(path_, options);
  }
  Result<std::unique_ptr<Dataset>> open_file(const std::string& path, DatasetOptions options) {
    options.aim = RowAim::Marked;
    options.vocab_size = 128;
    return Dataset::open(path, tokenizer_.get(), options);
  }
  /// The learned text of a row, and its mark.
  std::pair<std::string, bool> answer(const json& row, DatasetOptions options = {}) {
    const auto opened = open(json::array({row}), options);
    if (!opened) {
      ADD_FAILURE() << opened.error().to_string();
      return {};
    }
    const Sample sample = (*opened)->at(0).value();
    return {learned(sample), sample.good.value()};
  }
  std::string learned(const Sample& sample) const {
    std::string text;
    for (size_t at = 0; at < sample.labels.size(); ++at)
      if (sample.labels[at] != kIgnoredLabel)
        text += tokenizer_->decode(std::span(sample.input_ids).subspan(at, 1), false);
    return text;
  }
  std::string whole(const Sample& sample) const {
    return tokenizer_->decode(sample.input_ids, false);
  }
  std::string problem(const json& rows) {
    const auto opened = open(rows);
    return opened ? std::string() : opened.error().to_string();
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::string path_;
};

/// Rows, the answers combined with them, and the order of pairs that become two rows.
TEST_F(MarkedRows, TokensEqualTrls) {
  const json oracle = json::parse(std::ifstream(marked_fixtures() + "kto.json"));
  int compared = 0;
  for (const json& one : oracle["cases"]) {
    const bool rotates = !one["tokens"][0][2].is_null();
    const int64_t longest = one["max_length"];
    const auto opened =
        open_file(marked_fixtures() + "kto_" + one["rows"].get<std::string>() + "_train.jsonl",
                  {.max_seq_length = longest, .selection = {.max_samples = one["trained"]}});
    ASSERT_TRUE(opened) << opened.error().to_string();
    ASSERT_EQ((*opened)->rows(), std::ssize(one["tokens"])) << one["rows"];
    if (rotates) (*opened)->rotate_answers(2, 0);
    for (size_t i = 0; i < one["tokens"].size(); ++i) {
      const json& theirs = one["tokens"][i];
      const Sample own = (*opened)->at(static_cast<int64_t>(i)).value();
      const auto check = [&](const Sample& sample, const json& answer) {
        auto ids = theirs[0].get<std::vector<int32_t>>();
        std::vector<int32_t> labels(ids.size(), kIgnoredLabel);
        for (const json& id : answer) {
          ids.push_back(id);
          labels.push_back(id);
        }
        ids.resize(std::min(ids.size(), static_cast<size_t>(longest)));
        labels.resize(ids.size());
        EXPECT_EQ(sample.input_ids, ids) << one["rows"] << " row " << i;
        EXPECT_EQ(sample.labels, labels) << one["rows"] << " row " << i;
      };
      check(own, theirs[1]);
      EXPECT_EQ(own.good.value(), theirs[3].get<bool>());
      ASSERT_EQ(own.beside.size(), rotates ? 1u : 0u);
      if (rotates) check(own.beside[0], theirs[2]);
      ++compared;
    }
  }
  EXPECT_GE(compared, 80);
}

TEST_F(MarkedRows, ReadsTheShapesOfOtherTools) {
  using Marked = std::pair<std::string, bool>;
  const Marked good("yes<|endoftext|>", true), bad("yes<|endoftext|>", false);
  const Marked said("yes<|im_end|>\n", false);
  const json user = {{"role", "user"}, {"content", "q"}},
             yes = {{"role", "assistant"}, {"content", "yes"}};
  EXPECT_EQ(answer({{"prompt", "q? "}, {"completion", "yes"}, {"label", true}}), good);
  EXPECT_EQ(answer({{"prompt", "q? "}, {"completion", "yes"}, {"label", false}}), bad);
  EXPECT_EQ(
      answer(
          {{"prompt", json::array({user})}, {"completion", json::array({yes})}, {"label", false}}),
      said);
  // The forms of LLaMA-Factory's kto_en_demo.json, its alpaca rows, and ShareGPT's names.
  EXPECT_EQ(answer({{"messages", json::array({user, yes})}, {"label", false}}), said);
  EXPECT_EQ(answer({{"instruction", "q"}, {"input", ""}, {"output", "yes"}, {"kto_tag", false}}),
            bad);
  EXPECT_EQ(answer({{"conversations", json::array({{{"from", "human"}, {"value", "q"}},
                                                   {{"from", "gpt"}, {"value", "yes"}}})},
                    {"kto_tag", false}}),
            said);
  EXPECT_EQ(answer({{"question", "q"}, {"answer", "yes"}, {"label", 1}}), good);
  EXPECT_EQ(answer({{"ask", "q"}, {"says", "yes"}, {"fine", "False"}},
                   {.columns = {{"prompt", "ask"}, {"response", "says"}, {"kto_tag", "fine"}}}),
            bad);
  EXPECT_EQ(answer({{"instruction", "q"}, {"output", "yes"}, {"label", false}},
                   {.chat_template = "model"}),
            said);
}

/// Only the last answer is judged.
TEST_F(MarkedRows, EarlierAnswersBelongToThePrompt) {
  const auto turn = [](const char* role, const char* text) {
    return json{{"role", role}, {"content", text}};
  };
  EXPECT_EQ(answer({{"messages", json::array({turn("user", "q"), turn("assistant", "no"),
                                              turn("user", "r"), turn("assistant", "yes")})},
                    {"label", true}})
                .first,
            "yes<|im_end|>\n");
}

TEST_F(MarkedRows, RowsThatCannotBeJudgedAreRefusedByName) {
  EXPECT_NE(problem({{{"prompt", "q"}, {"completion", "a"}}}).find("has no label"),
            std::string::npos);
  EXPECT_NE(problem({{{"prompt", "q"}, {"completion", "a"}, {"label", "maybe"}}})
                .find("label: is \"maybe\""),
            std::string::npos);
  EXPECT_NE(problem({{{"text", "q"}, {"label", true}}}).find("expected a prompt and its answer"),
            std::string::npos);
  EXPECT_NE(problem({{{"messages", {{{"role", "user"}, {"content", "q"}}}}, {"label", true}}})
                .find("messages[0]: is not an answer"),
            std::string::npos);
  EXPECT_NE(problem({{{"prompt", "q"}, {"completion", "a"}, {"label", true}},
                     {{"prompt", "q"}, {"chosen", "a"}, {"rejected", "b"}}})
                .find("row 1, line 2: is of shape prompt, chosen, rejected"),
            std::string::npos);
  EXPECT_NE(problem({{{"prompt", "q"}, {"chosen", "a"}}}).find("has no label"), std::string::npos);
}

/// In TRL's order by datasets.map: 1,000 chosen answers, then their rejected answers.
TEST_F(MarkedRows, PairsBecomeTwoRowsInBlocksOfAThousand) {
  json pairs = json::array();
  for (int i = 0; i < 1003; ++i)
    pairs.push_back({{"prompt", std::to_string(i)}, {"chosen", "y"}, {"rejected", "n"}});
  const auto opened = open(pairs).value();
  EXPECT_TRUE(opened->is_unpaired());
  ASSERT_EQ(opened->rows(), 2006);
  const auto said = [&](int64_t row) { return whole(opened->at(row).value()); };
  EXPECT_EQ(said(0), "0y<|endoftext|>");
  EXPECT_EQ(said(999), "999y<|endoftext|>");
  EXPECT_EQ(said(1000), "0n<|endoftext|>");
  EXPECT_EQ(said(2000), "1000y<|endoftext|>");
  EXPECT_EQ(said(2003), "1000n<|endoftext|>");
  EXPECT_EQ(said(2005), "1002n<|endoftext|>");
  EXPECT_TRUE(opened->at(2002)->good.value());
  EXPECT_FALSE(opened->at(2003)->good.value());
  PosixFiles files;
  EXPECT_EQ(Dataset::count_rows(files, path_, {.aim = RowAim::Marked}).value(), 2006);
}

TEST_F(MarkedRows, AnswersChangePlacesWithinABlock) {
  json rows = json::array();
  for (int i = 0; i < 8; ++i)
    rows.push_back({{"prompt", std::to_string(i)},
                    {"completion", std::string(1, static_cast<char>('a' + i))},
                    {"label", i % 2 == 0}});
  const auto opened = open(rows).value();
  EXPECT_TRUE(opened->at(0)->beside.empty());
  opened->rotate_answers(3, 2);  // 2 of 8 rows are held out: blocks 01, 234, 567
  std::string beside;
  for (int64_t row = 0; row < 8; ++row) {
    const Sample sample = opened->at(row).value();
    EXPECT_EQ(learned(sample), std::string(1, static_cast<char>('a' + row)) + "<|endoftext|>");
    beside += whole(sample.beside.at(0)).substr(0, 2) + " ";
  }
  EXPECT_EQ(beside, "0b 1a 2e 3c 4d 5h 6f 7g ");
  opened->rotate_answers(3, 0);  // a block of two at the end
  EXPECT_EQ(whole(opened->at(6)->beside.at(0)).substr(0, 2), "6h");
}

TEST_F(MarkedRows, PromptsAndRowsAreCutByTheArguments) {
  const json rows = {{{"prompt", "0123456789"}, {"completion", "ab"}, {"label", true}},
                     {{"prompt", "x"}, {"completion", "cdefgh"}, {"label", false}}};
  const auto both = [&](DatasetOptions options) {
    const auto opened = open(rows, options).value();
    opened->rotate_answers(2, 0);
    const Sample first = opened->at(0).value();
    return std::pair(whole(first), whole(first.beside.at(0)));
  };
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(both({.max_prompt_length = 4}), Pair("6789ab<|endoftext|>", "6789cdefgh<|endoftext|>"));
  EXPECT_EQ(both({.max_seq_length = 12}), Pair("0123456789ab", "0123456789cd"));
  EXPECT_EQ(both({.max_seq_length = 5, .keeps_end = true}),
            Pair("89ab<|endoftext|>", "efgh<|endoftext|>"));
}

TEST_F(MarkedRows, ABatchHasEachRowsAnswerAndTheAnswersBesideThem) {
  const auto opened = open({{{"prompt", "abc"}, {"completion", "d"}, {"label", true}},
                            {{"prompt", "a"}, {"completion", "ef"}, {"label", false}}})
                          .value();
  opened->rotate_answers(2, 0);
  std::vector<Sample> samples = {opened->at(0).value(), opened->at(1).value()};
  samples[0].reference = {-1.5, -2.5};
  samples[0].beside[0].reference = {-2.5};
  const Batch batch = collate(samples);
  EXPECT_EQ(batch.row_lengths, (std::vector<int64_t>{5, 4}));
  ASSERT_EQ(batch.parts.size(), 2u);
  EXPECT_EQ(batch.parts[0].targets, 2);
  EXPECT_EQ(batch.parts[0].reference, -1.5);
  EXPECT_TRUE(batch.parts[0].good);
  EXPECT_FALSE(batch.parts[1].good);
  ASSERT_EQ(batch.beside.size(), 1u);
  EXPECT_EQ(batch.beside[0].row_lengths, (std::vector<int64_t>{6, 3}));
  EXPECT_EQ(batch.beside[0].parts[0].reference, -2.5);
}

}  // namespace
}  // namespace dsj::data
