// Data sets of several files and forms, and the selection of their rows.
#include <gtest/gtest.h>

#include <filesystem>

#include "common/files/memory_files.h"
#include "engine/data/dataset.h"
#include "tests/engine/data/support.h"

namespace dsj::data {
namespace {

using nlohmann::json;

class DatasetFiles : public testing::Test {
 protected:
  DatasetFiles() {
    write("/m/tokenizer.json", read_file(fixtures() + "/qwen2/tokenizer.json"));
    const nlohmann::json config = {
        {"eos_token", "<|im_end|>"},
        {"chat_template",
         "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + "
         "'<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}"
         "{{ '<|im_start|>assistant\n' }}{% endif %}"}};
    write("/m/tokenizer_config.json", config.dump());
    tokenizer_ = Tokenizer::load(files_, "/m").value();
  }
  void write(const std::string& path, const std::string& text) {
    EXPECT_TRUE(files_.make_dirs(path_parent(path)));
    EXPECT_TRUE(files_.write_synced(path, text));
  }
  Result<std::unique_ptr<Dataset>> open(const std::string& path, DatasetOptions options = {}) {
    options.vocab_size = tokenizer_->vocab_size();
    return Dataset::open(files_, path, tokenizer_.get(), options);
  }
  /// Each row as text.
  std::vector<std::string> texts(const std::string& path, DatasetOptions options = {}) {
    const auto dataset = open(path, std::move(options));
    if (!dataset) return {dataset.error().to_string()};
    std::vector<std::string> all;
    for (int64_t row = 0; row < (*dataset)->rows(); ++row)
      all.push_back(tokenizer_->decode((*dataset)->at(row).value().input_ids, false));
    return all;
  }
  std::string refusal(const std::string& path, DatasetOptions options = {}) {
    const auto dataset = open(path, std::move(options));
    EXPECT_FALSE(dataset) << path;
    return dataset ? "" : dataset.error().to_string();
  }

  MemoryFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

using Texts = std::vector<std::string>;

TEST_F(DatasetFiles, FilesOfSeveralFormsAreOneDataSet) {
  write("/d/a.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  write("/d/b.csv", "text,id\nthree,3\n");
  write("/d/c.json", R"([{"text": "four"}])");
  EXPECT_EQ(texts("/d"),
            (Texts{"one<|im_end|>", "two<|im_end|>", "three<|im_end|>", "four<|im_end|>"}));
  EXPECT_EQ(texts("/d/c.json,/d/a.jsonl"),
            (Texts{"four<|im_end|>", "one<|im_end|>", "two<|im_end|>"}));
  EXPECT_EQ(Dataset::count_rows(files_, "/d").value(), 4);
  const auto dataset = open("/d");
  EXPECT_EQ((*dataset)->shapes(), "4 rows of shape text");
  EXPECT_NE((*dataset)->notes().back().find("id (1 row)"), std::string::npos);
}

TEST_F(DatasetFiles, ShapesMayDifferBetweenFilesButNotInOne) {
  write("/d/a.jsonl", R"({"text": "one"})");
  write("/d/b.jsonl", R"({"prompt": "two", "completion": " three"})");
  EXPECT_EQ(texts("/d"), (Texts{"one<|im_end|>", "two three<|im_end|>"}));
  write("/mixed.jsonl",
        "{\"text\": \"odd\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n"
        "{\"prompt\": \"a\", \"completion\": \"b\"}\n");
  const std::string said = refusal("/mixed.jsonl");
  EXPECT_NE(said.find("1 of 3 rows are bad"), std::string::npos) << said;
  EXPECT_NE(said.find("row 0, line 1: is of shape text, but 2 rows of the file are of shape "
                      "prompt, completion"),
            std::string::npos)
      << said;
}

TEST_F(DatasetFiles, ErrorsNameTheirFile) {
  write("/d/a.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n");
  write("/d/b.csv", "question,answer\nq,\n\"q\nq\",a\nq,a,b\n");
  const std::string said = refusal("/d");
  EXPECT_NE(said.find("3 of 5 rows are bad"), std::string::npos) << said;
  EXPECT_NE(said.find("\n  row 1, line 2 of /d/a.jsonl: text: is a number"), std::string::npos)
      << said;
  EXPECT_NE(said.find("\n  row 2, line 5 of /d/b.csv: has 3 fields"), std::string::npos) << said;
}

TEST_F(DatasetFiles, ChosenRowsKeepTheirOrder) {
  write("/a.jsonl", "{\"text\": \"a0\"}\n{\"text\": \"a1\"}\n{\"text\": \"a2\"}\n");
  write("/b.jsonl", "{\"text\": \"b0\"}\n{\"text\": \"b1\"}\n");
  EXPECT_EQ(texts("/a.jsonl,/b.jsonl", {.selection = {.max_samples = 1}}),
            (Texts{"a0<|im_end|>", "b0<|im_end|>"}));
  EXPECT_EQ(texts("/a.jsonl,/b.jsonl", {.selection = {.mix = Mix::InterleaveUnder}}),
            (Texts{"a0<|im_end|>", "b0<|im_end|>", "a1<|im_end|>", "b1<|im_end|>"}));
  EXPECT_EQ(
      Dataset::count_rows(files_, "/a.jsonl,/b.jsonl", {.selection = {.mix = Mix::InterleaveOver}})
          .value(),
      6);
  // numpy: default_rng(42).permutation(3) begins with 2
  EXPECT_EQ(texts("/a.jsonl", {.selection = {.held_out = 1}}),
            (Texts{"a2<|im_end|>", "a0<|im_end|>", "a1<|im_end|>"}));
}

TEST_F(DatasetFiles, ColumnarFilesAreRecognizedByContent) {
  const std::string from = fixtures() + "/columns/";
  if (!std::filesystem::exists(std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                               "libdsj_columns.so"))
    GTEST_SKIP() << "NO ARROW: libdsj_columns.so is not built";
  for (const char* name : {"dataset_dict.json", "train/state.json", "test/state.json"})
    write(std::string("/saved/") + name, read_file(from + "saved/" + name));
  for (const char* shard : {"0", "1", "2"}) {
    const std::string name = std::string("train/data-0000") + shard + "-of-00003.arrow";
    write("/saved/" + name, read_file(from + "saved/" + name));
  }
  const Texts saved = texts("/saved");
  ASSERT_EQ(saved.size(), 7u) << saved[0];
  for (size_t i = 0; i < saved.size(); ++i) {
    const std::string row = std::to_string(i);
    EXPECT_TRUE(
        saved[i].ends_with("Instruction:\nq" + row + "\n\n### Response:a" + row + "<|im_end|>"))
        << saved[i];
  }
  write("/called.json", read_file(from + "delta.parquet"));
  const auto called = open("/called.json", {.columns = {{"text", "t"}}});
  ASSERT_TRUE(called) << called.error().to_string();
  EXPECT_EQ((*called)->shapes(), "143 rows of shape text");
  // Their rows have no lines.
  const std::string said = refusal("/called.json,/chats.arrow");
  EXPECT_NE(said.find("/chats.arrow"), std::string::npos);
  write("/chats.arrow", read_file(from + "chats-zstd-file.arrow"));
  const std::string bad = refusal("/chats.arrow");
  EXPECT_NE(bad.find("\n  row 0: "), std::string::npos) << bad;
  EXPECT_EQ(bad.find("line"), std::string::npos) << bad;
  write("/cut.parquet", read_file(from + "json.parquet").substr(0, 1000));
  EXPECT_NE(refusal("/cut.parquet").find("/cut.parquet: is a Parquet file that cannot be read: "),
            std::string::npos);
}

TEST_F(DatasetFiles, ColumnsMayHoldLists) {
  write("/lf/rows.jsonl", R"({"q": "Say", "a": " hi", "output": "no"})");
  write("/lf/dataset_info.json",
        R"({"mine": {"file_name": "rows.jsonl", "columns": {"prompt": "q", "response": "a"}}})");
  const json columns = {{"prompt", "q"}, {"response", "a"}};
  const Texts named = texts("/lf", {.dataset = "mine"});
  EXPECT_EQ(named, texts("/lf/rows.jsonl", {.columns = columns}));
  EXPECT_TRUE(named[0].ends_with("### Instruction:\nSay\n\n### Response: hi<|im_end|>"))
      << named[0];
  EXPECT_NE(refusal("/lf", {.dataset = "mine", .columns = columns}).find("datasetColumns"),
            std::string::npos);
}

TEST_F(DatasetFiles, TheEndOfALongRowIsKept) {
  write("/a.jsonl", R"({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, 3, 4]})");
  const auto cut = open("/a.jsonl", {.max_seq_length = 3, .keeps_end = true});
  ASSERT_TRUE(cut);
  EXPECT_EQ((*cut)->at(0)->input_ids, (std::vector<int32_t>{2, 3, 4}));
  EXPECT_EQ((*cut)->at(0)->labels, (std::vector<int32_t>{kIgnoredLabel, 3, 4}));
  EXPECT_EQ((*cut)->truncated_rows(), 2);
  EXPECT_EQ((*cut)->whole(0)->input_ids.size(), 4u);
}

/// As in axolotl's input_output: each part is tokenized separately, nothing is added.
TEST_F(DatasetFiles, SegmentsAreTokenizedSeparately) {
  const std::string row =
      R"({"segments": [{"text": "Hello", "label": true}, )"
      R"({"text": " you", "label": false}, {"text": " there", "label": true}]})";
  write("/a.jsonl", row);
  const auto dataset = open("/a.jsonl");
  ASSERT_TRUE(dataset) << dataset.error().to_string();
  const Sample sample = (*dataset)->at(0).value();
  std::vector<int32_t> ids, labels;
  for (const auto& [text, learned] :
       {std::pair{"Hello", true}, {" you", false}, {" there", true}}) {
    const auto part = tokenizer_->encode(text, {.add_special_tokens = false}).value();
    for (const int32_t id : part) {
      ids.push_back(id);
      labels.push_back(learned ? id : kIgnoredLabel);
    }
  }
  EXPECT_EQ(sample.input_ids, ids);
  EXPECT_EQ(sample.labels, labels);
}

}  // namespace
}  // namespace dsj::data
