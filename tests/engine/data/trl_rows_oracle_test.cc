// Ids and labels of prompt-completion rows and of texts equal those of TRL's SFTTrainer:
// fixtures/trl_rows_oracle.json, made by tests/oracle/trl_rows_oracle.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/data/dataset.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

using nlohmann::json;

TEST(TrlRowsOracle, IdsAndLabelsEqualTrls) {
  const json oracle = json::parse(read_file(fixtures() + "/trl_rows_oracle.json"));
  ASSERT_GE(oracle["cases"].size(), 16u);
  for (const json& one : oracle["cases"]) {
    const TempDir dir;
    const std::string files = one["tokenizer"].get<std::string>();
    dir.write("tokenizer.json", read_file(fixtures() + "/" + files + "/tokenizer.json"));
    const bool llama = files == "llama3";
    dir.write("tokenizer_config.json",
              json{{"eos_token", llama ? "<|end_of_text|>" : "<|im_end|>"},
                   {"bos_token", llama ? json("<|begin_of_text|>") : json()}}
                  .dump());
    const auto tokenizer = Tokenizer::load(dir.path()).value();
    std::string lines;
    for (const json& row : one["rows"]) lines += row.dump() + "\n";
    const json& options = one["options"];
    const auto rows =
        Dataset::open(dir.write("rows.jsonl", lines), tokenizer.get(),
                      {.max_seq_length = options.value("max_length", int64_t{1} << 20),
                       .vocab_size = tokenizer->vocab_size(),
                       .chat_template = dir.write("form.jinja", one["template"].get<std::string>()),
                       .learning = {.inputs = !options.value("completion_only_loss", true)},
                       .keeps_end = options.value("truncation_mode", "") == "keep_end"});
    ASSERT_TRUE(rows) << rows.error().to_string();
    for (int64_t i = 0; i < (*rows)->rows(); ++i) {
      const Sample sample = (*rows)->at(i).value();
      const json& made = one["made"][static_cast<size_t>(i)];
      const std::string what = one["kind"].get<std::string>() + " " + options.dump() + " " + files;
      EXPECT_EQ(json(sample.input_ids), made["input_ids"]) << what << " row " << i;
      EXPECT_EQ(json(sample.labels), made["labels"]) << what << " row " << i;
    }
  }
}

}  // namespace
}  // namespace dsj::data
