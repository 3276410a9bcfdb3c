#include "engine/data/dataset.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"
#include "engine/data/shapes/prompt.h"
#include "tests/engine/data/qwen_tokenizer.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

constexpr int64_t kVocab = 5000;

Result<std::unique_ptr<Dataset>> open(const std::string& text, const std::string& name = "d.json",
                                      int64_t max_seq_length = 2048, int64_t vocab = kVocab,
                                      const Tokenizer* with = &qwen_tokenizer()) {
  MemoryFiles files;
  EXPECT_TRUE(files.write_synced(name, text));
  return Dataset::open(files, name, with, {.max_seq_length = max_seq_length, .vocab_size = vocab});
}

std::string error(const std::string& text, const std::string& name = "d.json",
                  int64_t vocab = kVocab, const Tokenizer* with = &qwen_tokenizer()) {
  const auto dataset = open(text, name, 2048, vocab, with);
  EXPECT_FALSE(dataset) << text;
  return dataset ? "" : dataset.error().to_string();
}

TEST(Prompt, HasATemplateWithAndWithoutInput) {
  EXPECT_EQ(alpaca_prompt("Add.", "1 2"),
            "Below is an instruction that describes a task, paired with an input that provides "
            "further context. Write a response that appropriately completes the request.\n\n"
            "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:");
  EXPECT_EQ(alpaca_prompt("Sing."),
            "Below is an instruction that describes a task. Write a response that appropriately "
            "completes the request.\n\n### Instruction:\nSing.\n\n### Response:");
}

TEST(Dataset, LossOnTheResponseOnly) {
  const auto dataset = open(R"([{"instruction": "Say hi", "input": "", "output": " hello"}])");
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  const Sample sample = (*dataset)->at(0).value();
  const auto prompt = qwen_tokenizer().encode(alpaca_prompt("Say hi")).value();
  const auto answer = qwen_tokenizer().encode(" hello<|im_end|>").value();
  std::vector<int32_t> ids = prompt, labels(prompt.size(), kIgnoredLabel);
  ids.insert(ids.end(), answer.begin(), answer.end());
  labels.insert(labels.end(), answer.begin(), answer.end());
  EXPECT_EQ(sample.input_ids, ids);
  EXPECT_EQ(sample.labels, labels);
  EXPECT_EQ(sample.labels.back(), qwen_tokenizer().eos_id());
}

TEST(Dataset, CutsAtTheRightAndCounts) {
  const std::string row = R"({"instruction": "Say hi", "output": " hello"})";
  const auto whole = open("[" + row + "]");
  const Sample sample = (*whole)->at(0).value();
  EXPECT_EQ((*whole)->truncated_rows(), 0);
  const auto length = std::ssize(sample.input_ids) - 2;
  const auto cut = open("[" + row + "]", "d.json", length);
  const Sample shorter = (*cut)->at(0).value();
  EXPECT_EQ(shorter.input_ids,
            std::vector<int32_t>(sample.input_ids.begin(), sample.input_ids.end() - 2));
  EXPECT_EQ(shorter.labels, std::vector<int32_t>(sample.labels.begin(), sample.labels.end() - 2));
  EXPECT_EQ((*cut)->truncated_rows(), 1);
  EXPECT_EQ((*cut)->rows_without_target(), 0);
  const auto none = open("[" + row + "]", "d.json", 5);
  EXPECT_EQ((*none)->at(0).value().labels, std::vector<int32_t>(5, kIgnoredLabel));
  EXPECT_EQ((*none)->rows_without_target(), 1);
}

TEST(Dataset, ThreeFormsOfAFileGiveTheSameRows) {
  const std::string a = R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]})";
  const std::string b = R"({"input_ids": [4], "labels": [4], "attention_mask": [1]})";
  for (const auto& [text, name] :
       {std::pair{"[" + a + ", " + b + "]", "d.json"},
        {a + "\n" + b + "\n", "d.jsonl"},
        {"{\"seed\": 1, \"samples\": [" + a + "," + b + "]}", "d.json"}}) {
    const auto dataset = open(text, name, 2048, kVocab, nullptr);
    ASSERT_TRUE(dataset) << dataset.error().to_string();
    EXPECT_EQ((*dataset)->rows(), 2);
    EXPECT_EQ((*dataset)->kind(), RowKind::Tokens);
    EXPECT_EQ((*dataset)->at(0)->labels, (std::vector<int32_t>{-100, 2, 3}));
    EXPECT_EQ((*dataset)->at(1)->input_ids, std::vector<int32_t>{4});
  }
}

TEST(Dataset, BadRowsNameRowFieldAndReason) {
  struct Case {
    const char* row;
    const char* says;
  };
  const std::string good = R"({"instruction": "a", "input": "", "output": "b"})";
  for (const Case& c :
       {Case{R"({"instruction": "a"})", "output: is missing"},
        {R"({"instruction": "a", "output": null})", "output: is null, expected text"},
        {R"({"instruction": ["a"], "output": "b"})", "instruction: is a list, expected text"},
        {R"({"instruction": "a", "input": 3, "output": "b"})", "input: is a number, expected text"},
        {R"({"output": "b"})", "has the fields output, and no shape of rows has these"},
        {R"({"messages": []})", "messages: is empty"},
        {R"([1])", "is a list, expected an object"},
        {R"({"instruction": "a" "output": "b"})", "is not JSON"},
        {"{\"instruction\": \"\xFF\", \"output\": \"b\"}", "is not JSON"},
        {R"({"input_ids": [1], "labels": [1]})",
         "is of shape tokens (input_ids, labels), but 2 rows of the file are of shape alpaca"}}) {
    const std::string text = error("[" + good + ",\n" + c.row + ",\n" + good + "]");
    EXPECT_NE(text.find("d.json: 1 of 3 rows are bad"), std::string::npos) << text;
    EXPECT_NE(text.find(std::string("\n  row 1, line 2: ") + c.says), std::string::npos) << text;
  }
}

TEST(Dataset, BadTokenRows) {
  struct Case {
    const char* row;
    const char* says;
  };
  for (const Case& c :
       {Case{R"({"input_ids": [1, 512], "labels": [1, 2]})",
             "input_ids[1]: is 512, expected an id from 0 to 511"},
        {R"({"input_ids": [-1], "labels": [1]})", "input_ids[0]: is -1"},
        {R"({"input_ids": [18446744073709551615], "labels": [1]})", "input_ids[0]: is 1844"},
        {R"({"input_ids": [1.5], "labels": [1]})", "input_ids[0]: is a fraction"},
        {R"({"input_ids": [1, 2], "labels": [1, -101]})",
         "labels[1]: is -101, expected an id from 0 to 511 or -100"},
        {R"({"input_ids": [1, 2], "labels": [1]})", "labels: has 1 entries, input_ids has 2"},
        {R"({"input_ids": [], "labels": []})", "input_ids: is empty"},
        {R"({"input_ids": [1]})", "labels: is missing"},
        {R"({"input_ids": "x", "labels": [1]})", "input_ids: is text, expected a list"},
        {R"({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [1, 0]})",
         "labels[1]: is 2 at padding (attention_mask 0), expected -100"},
        {R"({"input_ids": [1, 2], "labels": [-100, 2], "attention_mask": [0, 1]})",
         "attention_mask[0]: is 0, expected 1 (only padding at the end of a row is read"},
        {R"({"input_ids": [1, 2, 3], "labels": [1, 2, 3], "attention_mask": [1, 0, 1]})",
         "attention_mask[1]: is 0 before a 1"},
        {R"({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [1]})",
         "attention_mask: is not as long as input_ids"},
        {R"({"input_ids": [1, 2], "labels": [1, 2], "attention_mask": [1, 7]})",
         "attention_mask[1]: is 7, expected 0 or 1"},
        {R"({"input_ids": [1, 2], "completion_mask": [1]})",
         "completion_mask: is not as long as input_ids"},
        {R"({"input_ids": [1, 2], "assistant_masks": 1})",
         "assistant_masks: is a number, expected a list of 0 and 1"}}) {
    const std::string text = error(std::string(c.row) + "\n", "d.jsonl", 512, nullptr);
    EXPECT_NE(text.find(std::string("row 0, line 1: ") + c.says), std::string::npos) << text;
  }
}

/// Rows as tokenizers pad them and as TRL writes masks give the sample of the row without padding,
/// with labels of its own.
TEST(Dataset, PaddingAndMasksGiveTheSampleOfAPlainRow) {
  using nlohmann::json;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Lcg r(seed);
    const size_t length = 1 + r.below(6), padding = r.below(4);
    std::vector<int32_t> ids, labels;
    json row = {{"input_ids", json::array()}, {"attention_mask", json::array()}};
    const bool pretrains = r.below(3) == 0, all = r.below(4) == 0;
    const bool has_labels = r.below(3) == 0 || pretrains, booleans = r.below(2) == 0;
    const bool answers = r.below(2) == 0, completes = !answers || r.below(2) == 0;
    json own = json::array(), completion = json::array(), assistant = json::array();
    for (size_t i = 0; i < length + padding; ++i) {
      const bool pad = i >= length;
      const int32_t id = pad ? 0 : static_cast<int32_t>(1 + r.below(kVocab - 1));
      const bool by_completion = r.below(2) == 0, by_assistant = r.below(2) == 0;
      const auto flag = [&](bool set) { return booleans ? json(set) : json(set ? 1 : 0); };
      row["input_ids"].push_back(id);
      row["attention_mask"].push_back(flag(!pad));
      completion.push_back(flag(by_completion));
      assistant.push_back(flag(by_assistant));
      const bool target = has_labels
                              ? by_completion
                              : (!completes || by_completion || all) && (!answers || by_assistant);
      own.push_back(target && !pad ? id : kIgnoredLabel);
      if (pad) continue;
      ids.push_back(id);
      labels.push_back(own.back());
    }
    if (has_labels) row["labels"] = own;
    if (completes) row["completion_mask"] = completion;
    if (answers) row["assistant_masks"] = assistant;
    if (pretrains && r.below(2) == 0) {  // ids alone
      for (const char* field : {"labels", "completion_mask", "assistant_masks"}) row.erase(field);
      labels = ids;
    }
    MemoryFiles files;
    ASSERT_TRUE(files.write_synced("d.jsonl", row.dump() + "\n"));
    DatasetOptions options{.max_seq_length = static_cast<int64_t>(1 + r.below(8)),
                           .vocab_size = kVocab};
    options.learning.inputs = all;
    if (pretrains) options.aim = RowAim::Texts;
    const auto dataset = Dataset::open(files, "d.jsonl", nullptr, options);
    ASSERT_TRUE(dataset) << dataset.error().to_string() << row;
    EXPECT_GE((*dataset)->tokens_at_most(0), std::ssize(ids)) << row;
    EXPECT_EQ((*dataset)->whole(0).value().input_ids, ids) << row;
    EXPECT_EQ((*dataset)->whole(0).value().labels, labels) << row;
    const size_t kept = std::min(ids.size(), static_cast<size_t>(options.max_seq_length));
    ids.resize(kept);
    labels.resize(kept);
    EXPECT_EQ((*dataset)->at(0).value().input_ids, ids) << row;
    EXPECT_EQ((*dataset)->at(0).value().labels, labels) << row;
  }
}

TEST(Dataset, AnyDamageGivesARowOrAReadableError) {
  const std::string good =
      "[{\"instruction\": \"Say \\\"hi\\\"\", \"input\": \"\u00e9\", \"output\": \"\\u00e9\"},\n"
      " {\"instruction\": \"b\", \"output\": \"c\"}]";
  int opened = 0, refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Lcg r(seed);
    std::string text = good;
    for (uint32_t i = 0; i <= seed % 3; ++i) {
      const std::size_t at = r.below(text.size());
      static constexpr std::string_view kBytes = "[]{},:\"\\ \n0e-\xFF\xC3";
      const uint32_t kind = r.below(3);
      if (kind == 0) text[at] = r.pick(kBytes);
      if (kind == 1) text.erase(at, 1 + r.below(4));
      if (kind == 2) text.insert(at, 1, r.pick(kBytes));
    }
    const auto dataset = open(text, seed % 2 == 0 ? "d.json" : "d.jsonl");
    if (dataset) {
      ++opened;
      for (int64_t row = 0; row < (*dataset)->rows(); ++row) EXPECT_TRUE((*dataset)->at(row));
    } else {
      ++refused;
      const std::string says = dataset.error().to_string();
      EXPECT_TRUE(says.starts_with("d.json")) << says;
      EXPECT_FALSE(find_invalid_utf8(says)) << seed;
    }
  }
  EXPECT_GT(opened, 50);
  EXPECT_GT(refused, 500);
}

TEST(Dataset, ListsBadRowsUpToALimit) {
  std::string text;
  for (int i = 0; i < 50; ++i) text += "{\"instruction\": 1, \"output\": \"\"}\n\n";
  const std::string says = error(text, "d.jsonl");
  EXPECT_NE(says.find("50 of 50 rows are bad"), std::string::npos) << says;
  EXPECT_NE(says.find("row 19, line 39: instruction"), std::string::npos) << says;
  EXPECT_EQ(says.find("row 20,"), std::string::npos) << says;
  EXPECT_NE(says.find("and 30 more"), std::string::npos) << says;
}

TEST(Dataset, AlpacaNeedsATokenizerWithEos) {
  const std::string row = R"([{"instruction": "a", "output": "b"}])";
  EXPECT_NE(error(row, "d.json", kVocab, nullptr).find("there is no tokenizer"), std::string::npos);
  MemoryFiles files;
  ASSERT_TRUE(files.make_dir("m"));
  ASSERT_TRUE(
      files.write_synced("m/tokenizer.json", read_file(fixtures() + "/qwen2/tokenizer.json")));
  const auto without = Tokenizer::load(files, "m").value();
  EXPECT_NE(error(row, "d.json", kVocab, without.get()).find("names no eos token"),
            std::string::npos);
}

TEST(Dataset, ATokenThatTheModelLacksIsABadRow) {
  const std::string row = R"({"instruction": "a", "output": "b"})";
  const std::string says = error("[" + row + "]", "d.json", qwen_tokenizer().vocab_size() - 7);
  EXPECT_NE(says.find("row 0, line 1: becomes token"), std::string::npos) << says;
  EXPECT_NE(says.find("<|im_end|>"), std::string::npos) << says;
}

TEST(Dataset, EmptyAndMissingFiles) {
  EXPECT_NE(error("[]").find("has no rows"), std::string::npos);
  MemoryFiles files;
  EXPECT_FALSE(Dataset::open(files, "nothing.json", nullptr, {.vocab_size = 1}));
}

TEST(Dataset, AFileThatChangesIsNoticed) {
  const TempDir dir;
  const std::string path = dir.write("d.json", R"([{"input_ids": [1], "labels": [1]}])");
  const auto dataset = Dataset::open(path, nullptr, {.vocab_size = 512});
  ASSERT_TRUE(dataset);
  dir.write("d.json", R"([{"input_ids": [9], "labels"; [1]}])");
  const auto sample = (*dataset)->at(0);
  ASSERT_FALSE(sample);
  EXPECT_EQ(sample.error().kind, ErrorKind::Environment);
  EXPECT_NE(sample.error().to_string().find("row 0"), std::string::npos);
}

TEST(Dataset, CountsRowsWithoutCheckingThem) {
  MemoryFiles files;
  ASSERT_TRUE(files.write_synced("d.json", R"([{"input_ids": "bad"}, {}, 3])"));
  EXPECT_EQ(Dataset::count_rows(files, "d.json").value(), 3);
}

TEST(Dataset, GoldenRuns) {
  const std::string path = shared_dir() + "/golden/models/data_s64_v512.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "NO GOLDEN DATA: " << path;
  const auto dataset = Dataset::open(path, nullptr, {.max_seq_length = 64, .vocab_size = 512});
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  EXPECT_EQ((*dataset)->rows(), 256);
  for (int64_t row = 0; row < 256; ++row) EXPECT_EQ((*dataset)->at(row)->labels.size(), 64u);
  EXPECT_EQ((*dataset)->truncated_rows(), 0);
}

}  // namespace
}  // namespace dsj::data
