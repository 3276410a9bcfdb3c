// Ids and labels of chat rows equal those of TRL's SFTTrainer with assistant_only_loss:
// fixtures/trl_oracle.json, made by tests/oracle/trl_oracle.py.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/data/dataset.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

struct Made {
  std::vector<int32_t> ids, labels;
};

/// Every conversation of the fixture, through a data file and the template as a file.
std::vector<Made> made_with(const json& one, const json& conversations) {
  const TempDir dir;
  const std::string form = dir.write("form.jinja", one["source"].get<std::string>());
  std::string lines;
  for (json messages : conversations) {
    const bool drops = one["template"] == "mistral" && messages[0]["role"] == "system";
    if (drops) messages.erase(0);
    lines += json{{"messages", messages}}.dump() + "\n";
  }
  dir.write("tokenizer.json",
            read_file(fixtures() + "/" + one["tokenizer"].get<std::string>() + "/tokenizer.json"));
  const bool llama = one["tokenizer"] == "llama3";
  dir.write("tokenizer_config.json", json{{"eos_token", llama ? "<|end_of_text|>" : "<|im_end|>"},
                                          {"bos_token", llama ? json("<|begin_of_text|>") : json()}}
                                         .dump());
  const auto tokenizer = Tokenizer::load(dir.path());
  EXPECT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto rows = Dataset::open(
      dir.write("rows.jsonl", lines), tokenizer->get(),
      {.max_seq_length = 1 << 20, .vocab_size = (*tokenizer)->vocab_size(), .chat_template = form});
  EXPECT_TRUE(rows) << rows.error().to_string();
  std::vector<Made> all;
  for (int64_t i = 0; rows && i < (*rows)->rows(); ++i) {
    Sample sample = (*rows)->at(i).value();
    all.push_back({std::move(sample.input_ids), std::move(sample.labels)});
  }
  return all;
}

std::string hash_of(const std::vector<int32_t>& numbers) {
  ListHash hash;
  for (const int32_t number : numbers) hash.number(static_cast<uint32_t>(number));
  hash.end();
  return hash.hex();
}

TEST(TrlOracle, IdsAndLabelsOfDrawnConversationsEqualTrls) {
  const json oracle = json::parse(read_file(fixtures() + "/trl_oracle.json"));
  ASSERT_GE(oracle["conversations"].size(), 50u);
  ASSERT_GE(oracle["templates"].size(), 5u);
  for (const json& one : oracle["templates"]) {
    const std::vector<Made> all = made_with(one, oracle["conversations"]);
    ASSERT_EQ(all.size(), oracle["conversations"].size());
    for (size_t i = 0; i < one["full"].size(); ++i) {
      EXPECT_EQ(json(all[i].ids), one["full"][i]["input_ids"]) << one["template"] << i;
      EXPECT_EQ(json(all[i].labels), one["full"][i]["labels"]) << one["template"] << i;
    }
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(hash_of(all[i].ids), one["ids"][i]) << one["template"] << i;
      EXPECT_EQ(hash_of(all[i].labels), one["labels"][i]) << one["template"] << i;
    }
  }
}

}  // namespace
}  // namespace dsj::data
