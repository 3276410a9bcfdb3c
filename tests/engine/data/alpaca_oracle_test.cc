// Rows equal those of Stanford's recipe with Hugging Face tokenizers: fixtures/alpaca_oracle.json,
// made by tests/oracle/tokenizer_rows_oracle.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/data/dataset.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

const json& alpaca_oracle() {
  static const json root = json::parse(read_file(fixtures() + "/alpaca_oracle.json"));
  return root;
}

void expect_same_rows(const json& entry, const Tokenizer& tokenizer, const std::string& rows) {
  const auto dataset = Dataset::open(
      rows, &tokenizer,
      {.max_seq_length = entry["max_seq_length"], .vocab_size = tokenizer.vocab_size()});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  const int64_t block = alpaca_oracle()["block"];
  std::vector<std::string> hashes;
  int64_t tokens = 0, targets = 0;
  ListHash hash;
  for (int64_t row = 0; row < (*dataset)->rows(); ++row) {
    const auto sample = (*dataset)->at(row);
    ASSERT_TRUE(sample) << sample.error().to_string();
    if (std::ssize(entry.value("cases", json::array())) > row) {
      const json& one = entry["cases"][static_cast<std::size_t>(row)];
      EXPECT_EQ(sample->input_ids, one["input_ids"].get<std::vector<int32_t>>()) << row;
      EXPECT_EQ(sample->labels, one["labels"].get<std::vector<int32_t>>()) << row;
    }
    tokens += std::ssize(sample->input_ids);
    targets += std::count_if(sample->labels.begin() + 1, sample->labels.end(),
                             [](int32_t label) { return label != kIgnoredLabel; });
    std::vector<int32_t> both = sample->input_ids;
    both.insert(both.end(), sample->labels.begin(), sample->labels.end());
    hash.list(both);
    if ((row + 1) % block == 0 || row + 1 == (*dataset)->rows()) {
      hashes.push_back(hash.hex());
      hash = ListHash();
    }
  }
  EXPECT_EQ(hashes, entry["blocks"].get<std::vector<std::string>>());
  EXPECT_EQ(tokens, entry["tokens"]);
  EXPECT_EQ(targets, entry["targets"]);
  EXPECT_EQ((*dataset)->rows_without_target(), entry["without_target"]);
}

TEST(AlpacaOracle, RowsEqualWithSmallTokenizers) {
  int compared = 0;
  for (const json& entry : alpaca_oracle()["entries"]) {
    const std::string name = entry["name"];
    if (name.starts_with("corpus")) continue;
    const TempDir dir;
    dir.write("tokenizer.json", read_file(fixtures() + "/" + name + "/tokenizer.json"));
    dir.write("tokenizer_config.json", json{{"eos_token", entry["eos"]}}.dump());
    const auto tokenizer = Tokenizer::load(dir.path());
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    SCOPED_TRACE(name);
    expect_same_rows(entry, **tokenizer, fixtures() + "/alpaca_rows.json");
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

class AlpacaCorpus : public testing::TestWithParam<const char*> {};

TEST_P(AlpacaCorpus, TheWholeSampleIsEqual) {
  const std::string rows = shared_dir() + "/corpus/alpaca/alpaca_sample.json";
  const std::string dir = shared_dir() + "/corpus/tokenizers/" + GetParam();
  if (!std::filesystem::exists(rows) || !std::filesystem::exists(dir)) {
    GTEST_SKIP() << "NO CORPUS: " << rows << ", " << dir;
  }
  const auto tokenizer = Tokenizer::load(dir);
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  for (const json& entry : alpaca_oracle()["entries"]) {
    if (entry["name"] == std::string("corpus ") + GetParam()) {
      return expect_same_rows(entry, **tokenizer, rows);
    }
  }
  FAIL() << "no entry";
}

INSTANTIATE_TEST_SUITE_P(Real, AlpacaCorpus, testing::Values("gpt2", "qwen"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dsj::data
