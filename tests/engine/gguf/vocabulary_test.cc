// Tokenizers: the keys of llama.cpp's own converter, and the tokens of which a real llama.cpp has made
// the same ids as Hugging Face's tokenizers (fixtures/gguf_oracle.json).
#include "engine/gguf/vocabulary.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/files/posix_files.h"
#include "engine/data/chat/template_sources.h"
#include "engine/data/tokenizer/tokenizer_files.h"
#include "engine/gguf/pre_tokenizer_name.h"
#include "tests/engine/data/support.h"
#include "tests/engine/gguf/read_gguf.h"

namespace dsj::gguf {
namespace {

using nlohmann::json;
using testing_support::crc_of;

constexpr int64_t kRows = 3072;

const json& tokenizer_records() {
  static const json root =
      json::parse(data::read_file(DSJ_SOURCE_DIR "/tests/engine/gguf/fixtures/gguf_oracle.json"));
  return root["tokenizers"];
}

/// tokenizer.json as the oracle had it: the record with the vocabulary of its base.
json tokenizer_json(const json& record) {
  json tokenizer = record["files"]["tokenizer.json"];
  const json base = json::parse(data::read_file(
      data::fixtures() + "/" + record["base"].get<std::string>() + "/tokenizer.json"));
  for (const char* field : {"vocab", "merges"}) tokenizer["model"][field] = base["model"][field];
  return tokenizer;
}

struct Vocabulary {
  Keys keys;
  std::vector<std::string> notes;
  Status status;
};

Vocabulary vocabulary_of(const data::TempDir& dir, int64_t rows = kRows) {
  Vocabulary made;
  PosixFiles files;
  const auto spec = data::read_tokenizer_files(files, dir.path());
  if (!spec) {
    made.status = std::unexpected(spec.error());
    return made;
  }
  made.status = set_vocabulary(files, dir.path(), *spec, rows, made.keys, made.notes);
  return made;
}

void write_model(const data::TempDir& dir, const json& record, const json& tokenizer) {
  dir.write("tokenizer.json", tokenizer.dump());
  dir.write("config.json", record["files"]["config.json"].dump());
  dir.write("tokenizer_config.json", record["files"]["tokenizer_config.json"].dump());
  if (record["model_file"] == true)
    dir.write("tokenizer.model",
              data::read_file(data::fixtures() + "/" + record["base"].get<std::string>() +
                              "/tokenizer.model"));
}

json json_of(const Value& value) {
  return std::visit([](const auto& one) { return json(one); }, value);
}

template <typename T>
std::string joined(const Keys& keys, const char* key, const char* between) {
  std::string text;
  const Value* found = keys.find(key);
  if (!found) return text;
  for (const T& one : std::get<std::vector<T>>(*found)) {
    if (!text.empty() || &one != std::get<std::vector<T>>(*found).data()) text += between;
    if constexpr (std::is_same_v<T, std::string>)
      text += one;
    else
      text += std::to_string(one);
  }
  return text;
}

/// As vocabulary_crc() of the oracle.
uint32_t crc_of_vocabulary(const Keys& keys) {
  std::string scores;
  if (const Value* found = keys.find("tokenizer.ggml.scores")) {
    const auto& list = std::get<std::vector<float>>(*found);
    for (size_t i = 0; i < list.size() * 4; ++i) {
      char digits[3];
      std::snprintf(digits, sizeof(digits), "%02x",
                    reinterpret_cast<const unsigned char*>(list.data())[i]);
      scores += digits;
    }
  }
  return crc_of(joined<std::string>(keys, "tokenizer.ggml.tokens", "\n") + std::string(1, '\0') +
                joined<int32_t>(keys, "tokenizer.ggml.token_type", ",") + std::string(1, '\0') +
                joined<std::string>(keys, "tokenizer.ggml.merges", "\n") + std::string(1, '\0') +
                scores);
}

TEST(GgufVocabulary, EqualsTheConverterAndWhatLlamaCppHasRead) {
  EXPECT_GE(tokenizer_records().size(), 12u);
  for (const auto& [name, record] : tokenizer_records().items()) {
    SCOPED_TRACE(name);
    const data::TempDir dir;
    write_model(dir, record, tokenizer_json(record));
    Vocabulary made = vocabulary_of(dir);
    ASSERT_TRUE(made.status) << made.status.error().to_string();
    EXPECT_GE(record["texts"].get<int>(), 40);
    EXPECT_EQ(crc_of_vocabulary(made.keys), record["crc32"]);
    for (const auto& [key, value] : record["keys"].items()) {
      // The templates are the exporter's, and separators belong to pairs of texts.
      if (key == "tokenizer.chat_template" || key == "tokenizer.ggml.add_sep_token") continue;
      const Value* found = made.keys.find(key);
      ASSERT_NE(found, nullptr) << key;
      EXPECT_EQ(json_of(*found), value) << key;
    }
  }
}

std::string refused(const char* name, const std::function<void(json&)>& change,
                    int64_t rows = kRows) {
  const json& record = tokenizer_records()[name];
  json tokenizer = tokenizer_json(record);
  change(tokenizer);
  const data::TempDir dir;
  write_model(dir, record, tokenizer);
  const Vocabulary made = vocabulary_of(dir, rows);
  EXPECT_FALSE(made.status) << name;
  return made.status ? "" : made.status.error().to_string();
}

TEST(GgufVocabulary, RefusesWhatLlamaCppWouldFollowOtherwise) {
  const std::tuple<const char*, std::function<void(json&)>, const char*> cases[] = {
      {"gpt2",
       [](json& t) {
         t["normalizer"] = {{"type", "Lowercase"}};
       },
       "its normalizer"},
      {"gpt2", [](json& t) { t["pre_tokenizer"]["add_prefix_space"] = true; }, "a step"},
      {"gpt2", [](json& t) { t["pre_tokenizer"]["use_regex"] = false; }, "no name"},
      {"gpt2", [](json& t) { t["model"]["ignore_merges"] = true; }, "no name"},
      {"smollm",
       [](json& t) { t["pre_tokenizer"]["pretokenizers"][0]["individual_digits"] = false; },
       "a step"},
      {"llama3",
       [](json& t) {
         t["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\p{L}+|[^\\p{L}]+";
       },
       "no name for its pre-tokenizer"},
      {"spm-merges",
       [](json& t) {
         t["normalizer"] = {{"type", "NFC"}};
       },
       "its normalizer"},
      {"spm-merges", [](json& t) { t["normalizer"] = nullptr; }, "U+2581"},
      {"spm-merges", [](json& t) { t["model"]["byte_fallback"] = false; }, "byte_fallback"},
      {"spm-first", [](json& t) { t["pre_tokenizer"]["split"] = true; }, "a step"},
      {"spm-merges", [](json& t) { t["model"]["merges"].erase(5); }, "not merged"},
      {"spm-merges",
       [](json& t) {
         json& merges = t["model"]["merges"];
         merges.push_back(merges[0]);
       },
       "do not follow each other"},
  };
  for (const auto& [name, change, message] : cases) {
    const std::string said = refused(name, change);
    EXPECT_NE(said.find(message), std::string::npos) << name << ": " << message << ": " << said;
  }
  EXPECT_NE(refused(
                "gpt2", [](json&) {}, 100)
                .find("vocab_size is 100"),
            std::string::npos);
}

TEST(GgufVocabulary, NamesAreOfWhatIsCutNotOfHowItIsWritten) {
  const json& record = tokenizer_records()["qwen2"];
  json tokenizer = tokenizer_json(record);
  json& split = tokenizer["pre_tokenizer"]["pretokenizers"][0];
  split["behavior"] = "Removed";  // only the matches are kept, and they are all of the text
  split["invert"] = true;
  const data::TempDir dir;
  write_model(dir, record, tokenizer);
  Vocabulary made = vocabulary_of(dir);
  ASSERT_TRUE(made.status) << made.status.error().to_string();
  EXPECT_EQ(json_of(*made.keys.find("tokenizer.ggml.pre")), "qwen2");
}

TEST(GgufVocabulary, SaysWhatHasNoForm) {
  const json& record = tokenizer_records()["gpt2"];
  json tokenizer = tokenizer_json(record);
  tokenizer["added_tokens"][0]["single_word"] = true;
  const data::TempDir dir;
  write_model(dir, record, tokenizer);
  const Vocabulary made = vocabulary_of(dir);
  ASSERT_TRUE(made.status);
  ASSERT_EQ(made.notes.size(), 1u);
  EXPECT_NE(made.notes[0].find("single_word"), std::string::npos);
}

TEST(GgufVocabulary, RowsWithoutATokenAreUnused) {
  const json& record = tokenizer_records()["gpt2"];
  const data::TempDir dir;
  write_model(dir, record, tokenizer_json(record));
  const Vocabulary made = vocabulary_of(dir, 5000);
  ASSERT_TRUE(made.status);
  const auto tokens = std::get<std::vector<std::string>>(*made.keys.find("tokenizer.ggml.tokens"));
  const auto kinds = std::get<std::vector<int32_t>>(*made.keys.find("tokenizer.ggml.token_type"));
  ASSERT_EQ(tokens.size(), 5000u);
  EXPECT_EQ(tokens[4999], "[PAD4999]");
  EXPECT_EQ(kinds[4999], static_cast<int32_t>(TokenKind::Unused));
}

TEST(TemplateSources, ComeFromTheFirstFileThatHasThem) {
  PosixFiles files;
  const data::TempDir dir;
  dir.write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]})");
  const auto listed = data::template_sources(files, dir.path());
  ASSERT_TRUE(listed);
  EXPECT_EQ(listed->source, "A");
  EXPECT_EQ(listed->tool_source, "B");
  dir.write("chat_template.jinja", "C");
  EXPECT_EQ(data::template_sources(files, dir.path())->source, "C");
}

}  // namespace
}  // namespace dsj::gguf
