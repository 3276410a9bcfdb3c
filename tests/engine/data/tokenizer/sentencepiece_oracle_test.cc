// SentencePiece's form: token ids equal those of Hugging Face tokenizers, and those of
// tokenizer.model read on its own equal both. The hashes are made by
// tests/oracle/sentencepiece_oracle.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/oracle.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

const json& sentencepiece_oracle() {
  static const json root = json::parse(read_file(fixtures() + "/sentencepiece_oracle.json"));
  return root;
}

/// The texts of the script's oracle_texts().
const std::vector<std::string>& marked_texts() {
  static const auto made = [] {
    const TextGenerator generator(read_ranges(fixtures() + "/unicode14.txt"));
    const std::string marks[] = {"  ",    " ",      "<s>",      "</s>",
                                 "<unk>", "\u2581", "   <s>  ", "\U0001F600\U0001F44D\U0001F3FD",
                                 "\n\n",  "<0x41>"};
    std::vector<std::string> all;
    for (std::size_t i = 0; i < 10000; ++i) {
      std::string text = generator.make(3, i);
      if (i % 4 == 1) {
        std::size_t length = 0, half = 0;
        for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).length) ++length;
        for (std::size_t n = 0; n < length / 2; ++n) half += code_point_at(text, half).length;
        text.insert(half, marks[i / 40 % 10]);
        text = marks[i / 4 % 10] + text + marks[i / 400 % 10];
      }
      all.push_back(std::move(text));
    }
    return all;
  }();
  return made;
}

/// The first list whose block differs, and the number of blocks that differ.
template <typename Lists>
void expect_blocks(const Lists& lists, const json& expected, const std::string& what) {
  const std::size_t block = sentencepiece_oracle()["block"];
  ASSERT_EQ(expected.size(), (lists.size() + block - 1) / block);
  std::vector<std::size_t> wrong;
  for (std::size_t at = 0; at < lists.size(); at += block) {
    ListHash hash;
    for (std::size_t i = at; i < std::min(at + block, lists.size()); ++i) hash.list(lists[i]);
    if (expected[at / block] != hash.hex()) wrong.push_back(at / block);
  }
  EXPECT_EQ(wrong, std::vector<std::size_t>{}) << what;
}

TEST(SentencePieceOracle, TheGeneratedTextsAreTheOracles) {
  ListHash hash;
  for (const std::string& text : marked_texts()) hash.list(text);
  EXPECT_EQ(sentencepiece_oracle()["text_hash"], hash.hex());
}

void expect_same_both_ways(const Tokenizer& tokenizer, const json& entry) {
  const EncodeOptions options{.parse_special = entry["parse_special"],
                              .add_special_tokens = entry["add_special_tokens"]};
  for (const json& one : entry["cases"]) {
    const std::string text = one["text"];
    EXPECT_EQ(tokenizer.encode(text, options).value(), one["ids"].get<std::vector<int32_t>>())
        << text;
  }
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::string> decoded, plain;
  for (const std::string& text : marked_texts()) {
    ids.push_back(tokenizer.encode(text, options).value());
    decoded.push_back(tokenizer.decode(ids.back(), false));
    plain.push_back(tokenizer.decode(ids.back(), true));
  }
  expect_blocks(ids, entry["texts"], "ids");
  expect_blocks(decoded, entry["decoded"], "decoded");
  expect_blocks(plain, entry["plain"], "decoded without special tokens");
}

class SentencePieceVariant : public testing::TestWithParam<std::size_t> {};

TEST_P(SentencePieceVariant, EqualsHuggingFace) {
  const json& entry = sentencepiece_oracle()["variants"][GetParam()];
  const json root =
      json::parse(read_file(fixtures() + "/spm/tokenizer.json")).patch(entry["patch"]);
  const TempDir dir;
  dir.write("tokenizer.json", root.dump());
  const auto tokenizer = Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  expect_same_both_ways(**tokenizer, entry);
}

INSTANTIATE_TEST_SUITE_P(
    Fixtures, SentencePieceVariant,
    testing::Range<std::size_t>(0, sentencepiece_oracle()["variants"].size()),
    [](const auto& info) {
      std::string name;
      for (const char c :
           sentencepiece_oracle()["variants"].at(info.param)["name"].template get<std::string>())
        name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

TEST(SentencePieceModelFile, ReadOnItsOwnGivesTheSameTokenizer) {
  const TempDir dir;
  dir.write("tokenizer.model", read_file(fixtures() + "/spm/tokenizer.model"));
  const auto tokenizer = Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->bos_id(), 1);
  EXPECT_EQ((*tokenizer)->eos_id(), 2);
  EXPECT_EQ((*tokenizer)->stop_ids(), std::vector<int32_t>{2});
  EXPECT_EQ((*tokenizer)->vocab_size(), 3000);
  expect_same_both_ways(**tokenizer, variant_of(sentencepiece_oracle(), "llama"));
}

TEST(SentencePieceModelFile, TheConfigsFlagsDeterminePrefixAndBos) {
  const TempDir dir;
  dir.write("tokenizer.model", read_file(fixtures() + "/spm/tokenizer.model"));
  dir.write("tokenizer_config.json",
            R"({"tokenizer_class": "LlamaTokenizer", "legacy": false, "add_eos_token": true})");
  const auto tokenizer = Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  // legacy: false is Metaspace with "first": no prefix after a special token.
  const auto ids = (*tokenizer)->encode("<s>a", {.add_special_tokens = false});
  const auto letter = (*tokenizer)->token_to_id("a");
  ASSERT_TRUE(ids && letter);
  EXPECT_EQ(*ids, (std::vector<int32_t>{1, *letter}));
  EXPECT_EQ((*tokenizer)->encode("").value(), (std::vector<int32_t>{1, 2}));
}

TEST(SentencePieceModelFile, EqualsSentencePieceItself) {
  const TempDir dir;
  dir.write("tokenizer.model", read_file(fixtures() + "/spm/tokenizer.model"));
  const auto tokenizer = Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : marked_texts()) {
    bool own = text.find('\0') == text.npos;
    for (const char* mark : {"<s>", "</s>", "<unk>", "\u2581"})
      own = own && text.find(mark) == text.npos;
    if (own) ids.push_back((*tokenizer)->encode(text, {.add_special_tokens = false}).value());
  }
  EXPECT_EQ(ids.size(), sentencepiece_oracle()["own"]["count"]);
  EXPECT_GT(ids.size(), 7000u);
  expect_blocks(ids, sentencepiece_oracle()["own"]["texts"], "ids");
}

TEST(SentencePieceModelFile, RefusesByName) {
  const std::string good = read_file(fixtures() + "/spm/tokenizer.model");
  const auto error = [](const std::string& bytes, const std::string& config = "{}") {
    const TempDir dir;
    dir.write("tokenizer.model", bytes);
    dir.write("tokenizer_config.json", config);
    const auto loaded = Tokenizer::load(dir.path());
    EXPECT_FALSE(loaded);
    return loaded ? "no error" : loaded.error().to_string();
  };
  // Appended fields win, as in protobuf: trainer_spec {model_type}, normalizer_spec {...}.
  EXPECT_NE(error(good + std::string("\x12\x02\x18\x01", 4)).find("the model is Unigram"),
            std::string::npos);
  EXPECT_NE(error(good + std::string("\x1A\x03\x12\x01x", 5)).find("changes characters"),
            std::string::npos);
  EXPECT_NE(error(good + std::string("\x1A\x02\x20\x01", 4)).find("removes extra white space"),
            std::string::npos);
  EXPECT_NE(error(good + std::string("\x0A\x05\x0A\x01z\x18\x05", 7)).find("UNUSED"),
            std::string::npos);
  EXPECT_NE(error("").find("holds no pieces"), std::string::npos);
  EXPECT_NE(error(good.substr(0, good.size() / 2 + 1)).find("is not a protobuf from byte"),
            std::string::npos);
  EXPECT_NE(error(good, R"({"tokenizer_class": "T5Tokenizer"})").find("save_pretrained"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::data
