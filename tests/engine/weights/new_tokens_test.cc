// dsj add-tokens: ids as transformers 5.23's add_tokens gives them, rows that are the mean of the old ones.
#include "engine/weights/new_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/weight_source.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::weights {
namespace {

using nlohmann::json;
using testing_support::fixture;

class AddTokens : public testing::Test {
 protected:
  /// A model of the fixtures with the byte-level tokenizer of tests/fixtures/preference: ids 0 to 263.
  void prepare(const std::string& model) {
    PosixFiles disk;
    ASSERT_TRUE(files_.make_dirs("/m"));
    ASSERT_TRUE(files_.make_dirs("/out"));
    for (const char* name : {"config.json", "model.safetensors"}) {
      ASSERT_TRUE(files_.write_atomically(path_join("/m", name),
                                          *disk.read_all(path_join(fixture(model), name))));
    }
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
      ASSERT_TRUE(files_.write_atomically(path_join("/m", name),
                                          *disk.read_all(path_join(fixture("preference"), name))));
    }
  }
  Result<AddedTokens> add(std::vector<std::string> tokens, bool special = false,
                          int64_t multiple = 64) {
    return add_tokens(files_, {.model = "/m",
                               .output = "/out/m",
                               .tokens = std::move(tokens),
                               .special = special,
                               .multiple = multiple});
  }
  json read(const std::string& path) {
    const auto text = files_.read_all(path);
    return text ? json::parse(*text) : json();
  }
  std::vector<float> values(const std::string& directory, const std::string& name) {
    const auto source = WeightSource::open(files_, directory);
    std::vector<float> all(source->find(name)->elements);
    EXPECT_TRUE(source->read(name, 0, all));
    return all;
  }
  MemoryFiles files_;
};

TEST_F(AddTokens, TheTokenizersFilesHaveThem) {
  prepare("tiny-qwen2");
  const int64_t rows = read("/m/config.json")["vocab_size"];
  const auto done = add({"<think>", "<|im_end|>", "</think>"}, true);
  ASSERT_TRUE(done) << done.error().to_string();
  const json before = read("/m/tokenizer.json"), after = read("/out/m/tokenizer.json");
  const size_t known = before["added_tokens"].size();
  int64_t next = 263;  // tokenizers counts on from the model's 264 tokens
  ASSERT_EQ(after["added_tokens"].size(), known + 2);
  for (size_t at = 0; at < 2; ++at)
    EXPECT_EQ(after["added_tokens"][known + at],
              (json{{"id", ++next},
                    {"content", at == 0 ? "<think>" : "</think>"},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}}));
  EXPECT_EQ(done->known, std::vector<std::string>{"<|im_end|>"});
  EXPECT_EQ(after["model"], before["model"]);
  EXPECT_GE(done->rows, next + 1);
  EXPECT_EQ(read("/out/m/config.json")["vocab_size"], done->rows);
  EXPECT_EQ(done->rows_before, rows);
}

/// For drawn numbers of tokens and multiples: old rows are the same bits, new ones the mean.
TEST_F(AddTokens, NewRowsAreTheMean) {
  std::mt19937 random(5);
  for (const char* model : {"tiny-qwen2", "tiny-qwen2-tied", "tiny-gpt-neox", "tiny-phi"}) {
    for (int draw = 0; draw < 3; ++draw) {
      files_ = MemoryFiles();
      prepare(model);
      json config = read("/m/config.json");
      const int64_t before = config["vocab_size"];
      std::vector<std::string> tokens;
      const int64_t count = std::uniform_int_distribution<int64_t>(1, 400)(random);
      for (int64_t at = 0; at < count; ++at) tokens.push_back("<new" + std::to_string(at) + ">");
      const int64_t multiple = std::vector<int64_t>{1, 8, 64}[draw];
      const auto done = add(tokens, false, multiple);
      ASSERT_TRUE(done) << model << done.error().to_string();
      ASSERT_EQ(std::ssize(done->added), count);
      const int64_t last = done->added.back().id;
      EXPECT_EQ(done->rows, last < before ? before : (last / multiple + 1) * multiple);
      const auto source = WeightSource::open(files_, "/m");
      ASSERT_TRUE(source);
      for (const TensorInfo& tensor : source->tensors()) {
        const auto old = values("/m", tensor.name), now = values("/out/m", tensor.name);
        ASSERT_GE(now.size(), old.size());
        EXPECT_TRUE(std::equal(old.begin(), old.end(), now.begin())) << tensor.name;
        if (now.size() == old.size()) continue;
        const size_t columns = old.size() / static_cast<size_t>(before);
        ASSERT_EQ(now.size(), columns * static_cast<size_t>(done->rows)) << tensor.name;
        for (size_t column = 0; column < columns; ++column) {
          double sum = 0;
          for (size_t at = column; at < old.size(); at += columns) sum += old[at];
          const double mean = sum / static_cast<double>(before);
          for (size_t at = old.size() + column; at < now.size(); at += columns)
            ASSERT_NEAR(now[at], mean, std::ldexp(std::abs(mean), -8) + 1e-8) << tensor.name;
        }
      }
    }
  }
}

TEST_F(AddTokens, EveryConfigNamesTheRows) {
  const NewVocabulary grown{.tokens = {}, .rows = 320};
  const auto after = [&](const char* text) {
    return json::parse(with_vocabulary("config.json", text, grown));
  };
  EXPECT_EQ(after("{}"), (json{{"vocab_size", 320}}));
  EXPECT_EQ(after(R"({"vocab_size": 256})"), (json{{"vocab_size", 320}}));
  // Gemma 3's published files leave the size of the text part to its class.
  EXPECT_EQ(after(R"({"text_config": {}})"), (json{{"text_config", {{"vocab_size", 320}}}}));
  EXPECT_EQ(after(R"({"vocab_size": 256, "text_config": {"vocab_size": 256}})"),
            (json{{"vocab_size", 320}, {"text_config", {{"vocab_size", 320}}}}));
}

TEST_F(AddTokens, ATokenizerThatIsNotOneIsRefused) {
  prepare("tiny-qwen2");
  for (const char* text :
       {"", "[]", "{}", R"({"model": 1})", R"({"model": {"vocab": []}, "added_tokens": [1]})"}) {
    ASSERT_TRUE(files_.write_atomically("/m/tokenizer.json", text));
    EXPECT_FALSE(add({"<new>"})) << text;
  }
}

/// A file of a tied model that repeats the embedding as the output layer.
TEST_F(AddTokens, ARepeatedEmbeddingGrowsToo) {
  prepare("tiny-qwen2-tied");
  const auto table = values("/m", "model.embed_tokens.weight");
  const auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source);
  std::vector<TensorDeclaration> tensors;
  for (const TensorInfo& tensor : source->tensors())
    tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  const TensorInfo* embedding = source->find("model.embed_tokens.weight");
  tensors.push_back({"lm_head.weight", embedding->dtype, embedding->shape});
  auto writer = SafetensorsWriter::create(files_, "/m/twice.safetensors", tensors);
  ASSERT_TRUE(writer) << writer.error().to_string();
  for (const TensorDeclaration& tensor : tensors)
    ASSERT_TRUE(writer->append(
        tensor.name, tensor.name == "lm_head.weight" ? table : values("/m", tensor.name)));
  ASSERT_TRUE(writer->finish());
  ASSERT_TRUE(files_.rename("/m/twice.safetensors", "/m/model.safetensors"));
  ASSERT_TRUE(add({"<new>"}));
  EXPECT_EQ(values("/out/m", "lm_head.weight"), values("/out/m", "model.embed_tokens.weight"));
}

TEST_F(AddTokens, ASecondEmbeddingIsRefused) {
  prepare("tiny-gemma4-e2b");
  const auto grown = add({"<new>"});
  ASSERT_FALSE(grown);
  EXPECT_NE(grown.error().message.find("embed_tokens_per_layer"), std::string::npos);
  EXPECT_FALSE(*files_.exists("/out/m"));
}

TEST_F(AddTokens, BadInputWritesNothing) {
  prepare("tiny-qwen2");
  EXPECT_FALSE(add({"<|im_end|>"})) << "known";
  EXPECT_FALSE(add({""}));
  EXPECT_FALSE(*files_.exists("/out/m"));
  ASSERT_TRUE(files_.make_dirs("/out/m"));
  EXPECT_FALSE(add({"<new>"})) << "occupied";
  ASSERT_TRUE(files_.remove_all("/out/m"));
  ASSERT_TRUE(files_.remove_all("/m/tokenizer.json"));
  EXPECT_FALSE(add({"<new>"}));
}

}  // namespace
}  // namespace dsj::weights
