// Token ids equal those of Hugging Face tokenizers (and of tiktoken, for Qwen's first vocabulary):
// the hashes in fixtures/tokenizer_oracle.json are made by tests/oracle/tokenizer_oracle.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/oracle.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

const json& tokenizer_oracle() {
  static const json root = json::parse(read_file(fixtures() + "/tokenizer_oracle.json"));
  return root;
}

const std::vector<Range>& unicode14() {
  static const auto ranges = read_ranges(fixtures() + "/unicode14.txt");
  return ranges;
}

const std::vector<std::string>& plain_texts() {
  static const auto made = [] {
    const TextGenerator generator(unicode14());
    std::vector<std::string> all;
    for (uint64_t i = 0; i < tokenizer_oracle()["texts"]; ++i)
      all.push_back(generator.make(tokenizer_oracle()["seed"], i));
    return all;
  }();
  return made;
}

std::vector<std::string> alpaca_texts() {
  std::vector<std::string> all;
  const std::string path = shared_dir() + "/corpus/alpaca/alpaca_sample.json";
  if (!std::filesystem::exists(path)) return all;
  for (const auto& row : json::parse(read_file(path))) {
    all.push_back(row["instruction"].get<std::string>() + "\n" + row["input"].get<std::string>() +
                  "\n" + row["output"].get<std::string>());
  }
  return all;
}

std::vector<std::vector<int32_t>> encode_all(const Tokenizer& tokenizer,
                                             const std::vector<std::string>& all,
                                             const EncodeOptions& options) {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : all) {
    auto encoded = tokenizer.encode(text, options);
    EXPECT_TRUE(encoded) << encoded.error().to_string();
    ids.push_back(encoded ? std::move(*encoded) : std::vector<int32_t>{});
  }
  return ids;
}

/// Indices of the blocks whose hashes differ.
template <typename Lists>
std::vector<std::size_t> wrong_blocks(const Lists& lists, const json& expected, std::size_t block) {
  std::vector<std::size_t> wrong;
  EXPECT_EQ(expected.size(), (lists.size() + block - 1) / block);
  for (std::size_t at = 0; at < lists.size(); at += block) {
    ListHash hash;
    for (std::size_t i = at; i < std::min(at + block, lists.size()); ++i) hash.list(lists[i]);
    if (expected[at / block] != hash.hex()) wrong.push_back(at / block);
  }
  return wrong;
}

void expect_same_ids(const Tokenizer& tokenizer, const json& entry, const EncodeOptions& options) {
  for (const json& one : entry["cases"]) {
    const std::string text = one["text"];
    ASSERT_EQ(plain_texts()[one["index"].get<std::size_t>()], text);
    EXPECT_EQ(tokenizer.encode(text, options).value(), one["ids"].get<std::vector<int32_t>>())
        << text;
  }
  const std::size_t block = tokenizer_oracle()["block"];
  const auto ids = encode_all(tokenizer, plain_texts(), options);
  EXPECT_EQ(wrong_blocks(ids, entry["texts"], block), std::vector<std::size_t>{});
  std::vector<std::string> decoded;
  for (const auto& row : ids) decoded.push_back(tokenizer.decode(row, false));
  EXPECT_EQ(wrong_blocks(decoded, entry["decoded"], 10 * block), std::vector<std::size_t>{});
  if (const auto alpaca = alpaca_texts(); !alpaca.empty()) {
    EXPECT_EQ(wrong_blocks(encode_all(tokenizer, alpaca, options), entry["alpaca"], block),
              std::vector<std::size_t>{});
  }
}

void expect_same_sweep(const Tokenizer& tokenizer, const json& entry,
                       const EncodeOptions& options) {
  const std::size_t block = tokenizer_oracle()["sweep_block"];
  std::vector<std::string> wrong;
  ListHash hash;
  uint32_t first = 0;
  std::size_t done = 0;
  const auto close = [&] {
    const std::size_t at = (done - 1) / block;
    if (entry["sweep"][at] != hash.hex()) {
      wrong.push_back(std::to_string(at) + ": from " + std::to_string(first));
    }
    hash = ListHash();
  };
  for (const Range& range : unicode14()) {
    for (uint32_t i = 0; i < range.count; ++i) {
      if (done % block == 0) first = range.first + i;
      hash.list(tokenizer.encode(sweep_text(range.first + i), options).value());
      if (++done % block == 0) close();
    }
  }
  if (done % block != 0) close();
  EXPECT_EQ(wrong, std::vector<std::string>{});
}

TEST(TokenizerOracle, TheGeneratedTextsAreTheOracles) {
  ListHash hash;
  for (const std::string& text : plain_texts()) hash.list(text);
  EXPECT_EQ(tokenizer_oracle()["text_hash"], hash.hex());
  EXPECT_GE(plain_texts().size(), 10000u);
}

class TokenizerVariant : public testing::TestWithParam<std::string> {};

TEST_P(TokenizerVariant, EqualsHuggingFace) {
  const json& entry = variant_of(tokenizer_oracle(), GetParam());
  const json root = json::parse(read_file(fixtures() + "/" + entry["base"].get<std::string>() +
                                          "/tokenizer.json"))
                        .patch(entry["patch"]);
  const TempDir dir;
  dir.write("tokenizer.json", root.dump());
  const auto tokenizer = Tokenizer::load(dir.path());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const EncodeOptions options{.parse_special = entry["parse_special"],
                              .add_special_tokens = entry["add_special_tokens"]};
  expect_same_ids(**tokenizer, entry, options);
  if (entry.contains("sweep")) expect_same_sweep(**tokenizer, entry, options);
}

std::vector<std::string> variant_names() {
  std::vector<std::string> names;
  for (const json& entry : tokenizer_oracle()["variants"]) {
    if (entry.contains("base")) names.push_back(entry["name"]);
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TokenizerVariant, testing::ValuesIn(variant_names()), test_name);

TEST(TokenizerOracle, CorpusGpt2) {
  const std::string dir = shared_dir() + "/corpus/tokenizers/gpt2";
  if (!std::filesystem::exists(dir + "/vocab.json")) GTEST_SKIP() << "NO CORPUS: " << dir;
  const auto tokenizer = Tokenizer::load(dir);
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->vocab_size(), 50257);
  EXPECT_EQ((*tokenizer)->eos_id(), 50256);
  expect_same_ids(**tokenizer, variant_of(tokenizer_oracle(), "corpus gpt2"), {});
}

TEST(TokenizerOracle, CorpusQwen) {
  const std::string dir = shared_dir() + "/corpus/tokenizers/qwen";
  if (!std::filesystem::exists(dir + "/qwen.tiktoken")) GTEST_SKIP() << "NO CORPUS: " << dir;
  const auto tokenizer = Tokenizer::load(dir);
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->vocab_size(), 151851);
  EXPECT_EQ((*tokenizer)->token_to_id("<|im_end|>"), 151645);
  EXPECT_EQ((*tokenizer)->token_to_id("<|extra_204|>"), 151850);
  EXPECT_EQ((*tokenizer)->eos_id(), 151643);
  expect_same_ids(**tokenizer, variant_of(tokenizer_oracle(), "corpus qwen"), {});
}

}  // namespace
}  // namespace dsj::data
