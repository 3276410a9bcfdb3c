// Token ids equal those of Hugging Face tokenizers, for the pipelines of published tokenizers
// and for each step: fixtures/pipeline_oracle.json, made by tests/oracle/pipeline_oracle.py.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/files/memory_files.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/tokenizer/tokenizer.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr uint64_t kSeed = 33;

const json& pipeline_oracle() {
  static const json root = json::parse(read_file(fixtures() + "/pipeline_oracle.json"));
  return root;
}

const std::vector<Range>& unicode16() {
  static const auto ranges = read_ranges(fixtures() + "/unicode16.txt");
  return ranges;
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string all;
  while (times-- > 0) all += text;
  return all;
}

std::string hard_text(uint64_t seed, std::size_t i) {
  static const TextGenerator generator(unicode16());
  std::string text = generator.make(seed, i);
  if (i % 7 == 3) text += std::string(1, '\0') + generator.make(seed + 1, i);
  if (i % 11 == 5) text += std::string(i % 300, ' ') + generator.make(seed + 2, i);
  if (i % 13 == 6) {
    text = repeated("\t\n", i % 50) + text + "\u200d" + std::string(1, '\0');
  }
  return text;
}

const std::vector<std::string>& hard_texts() {
  static const auto made = [] {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < pipeline_oracle()["texts"]; ++i) all.push_back(hard_text(kSeed, i));
    return all;
  }();
  return made;
}

std::vector<std::string> units_of(const json& design) {
  std::vector<std::string> units;
  if (design["form"] == "bytes") {
    for (int byte = 0; byte < 256; ++byte) {
      const bool missing = byte == 0xC0 || byte == 0xC1 || byte >= 0xF5;
      if (!(missing && design["holes"] == true))
        units.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
    }
    return units;
  }
  for (char c = 0x20; c < 0x7F; ++c) units.emplace_back(1, c);
  for (const char* c : {"\u2581", "\u00e9", "\u0301", "\u00df", "\u4e2d", "\u6587", "\u0410",
                        "\u044f", "\u03b1", "\u0130", "\n"})
    units.emplace_back(c);
  return units;
}

/// The vocabulary by the rule of the oracle, with each pair as a merge.
json model_of(const json& design) {
  json vocab = json::object();
  int32_t count = 0;
  const auto add = [&](const std::string& token) {
    if (vocab.emplace(token, count).second) ++count;
  };
  for (const char* token : {"<s>", "</s>", "<unk>"}) add(token);
  const std::vector<std::string> units = units_of(design);
  for (const std::string& unit : units) add(unit);
  if (design["model"].value("byte_fallback", false)) {
    for (int byte = 0; byte < 256; ++byte) {
      static constexpr char kDigits[] = "0123456789ABCDEF";
      add({'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'});
    }
  }
  json merges = json::array();
  const std::size_t pairs = units.size() * units.size();
  for (std::size_t i = 0; i < pairs; ++i) {
    const std::size_t at = i * 7919 % pairs;
    const std::string &left = units[at / units.size()], &right = units[at % units.size()];
    merges.push_back({left, right});
    add(left + right);
  }
  json model = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}};
  model.update(design["model"]);
  return model;
}

json added(int32_t id, const char* content, bool rstrip) {
  return {{"id", id},         {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", rstrip}, {"normalized", false}, {"special", true}};
}

Result<std::unique_ptr<Tokenizer>> load(const json& design) {
  json root = {
      {"added_tokens", {added(0, "<s>", false), added(1, "</s>", true), added(2, "<unk>", false)}},
      {"model", model_of(design)}};
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder"})
    root[part] = design[part];
  MemoryFiles files;
  EXPECT_TRUE(files.make_dir("m"));
  EXPECT_TRUE(files.write_synced("m/tokenizer.json", root.dump()));
  return Tokenizer::load(files, "m");
}

TEST(PipelineOracle, TheGeneratedTextsAreTheOracles) {
  ListHash hash;
  for (const std::string& text : hard_texts()) hash.list(text);
  EXPECT_EQ(pipeline_oracle()["text_hash"], hash.hex());
}

class Pipeline : public testing::TestWithParam<std::size_t> {
 protected:
  const json& design() const { return pipeline_oracle()["designs"][GetParam()]; }
};

TEST_P(Pipeline, EqualsHuggingFace) {
  SCOPED_TRACE(design()["name"].get<std::string>());
  const auto tokenizer = load(design());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  for (const json& one : design()["cases"]) {
    EXPECT_EQ((*tokenizer)->encode(one["text"].get<std::string>()).value(),
              one["ids"].get<std::vector<int32_t>>())
        << one["text"];
  }
  const std::size_t block = pipeline_oracle()["block"];
  std::set<std::size_t> wrong_ids, wrong_texts;
  for (std::size_t begin = 0; begin < hard_texts().size(); begin += block) {
    ListHash ids, texts;
    for (std::size_t i = begin; i < std::min(begin + block, hard_texts().size()); ++i) {
      const auto encoded = (*tokenizer)->encode(hard_texts()[i]);
      ASSERT_TRUE(encoded) << encoded.error().to_string();
      ids.list(*encoded);
      texts.list((*tokenizer)->decode(*encoded, false));
    }
    if (design()["texts"][begin / block] != ids.hex()) wrong_ids.insert(begin / block);
    if (design()["decoded"][begin / block] != texts.hex()) wrong_texts.insert(begin / block);
  }
  EXPECT_EQ(wrong_ids, std::set<std::size_t>{});
  EXPECT_EQ(wrong_texts, std::set<std::size_t>{});
}

/// Every assigned code point of Unicode 16, next to letters, digits and spaces.
TEST_P(Pipeline, EqualsHuggingFaceOnEveryCharacter) {
  if (!design().contains("sweep")) return;
  const auto tokenizer = load(design());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const std::size_t per_line = pipeline_oracle()["sweep_line"],
                    per_block = pipeline_oracle()["sweep_block"];
  std::vector<std::string> wrong;
  ListHash hash;
  std::string line;
  uint32_t first = 0;
  std::size_t characters = 0, lines = 0;
  const auto end_line = [&] {
    hash.list((*tokenizer)->encode(line).value());
    line.clear();
    ++lines;
  };
  const auto end_block = [&] {
    const std::size_t at = (lines - 1) / per_block;
    if (design()["sweep"][at] != hash.hex()) wrong.push_back("from " + std::to_string(first));
    hash = ListHash();
  };
  for (const Range& range : unicode16()) {
    for (uint32_t i = 0; i < range.count; ++i) {
      if (line.empty() && lines % per_block == 0) first = range.first + i;
      std::string c;
      append_utf8(range.first + i, c);
      line += "a" + c + "b " + c + c + " 1" + c;
      if (++characters % per_line != 0) continue;
      end_line();
      if (lines % per_block == 0) end_block();
    }
  }
  if (!line.empty()) end_line();
  if (lines % per_block != 0) end_block();
  EXPECT_EQ(wrong, std::vector<std::string>{}) << design()["name"];
}

/// A rule without fixtures: if no step changes text, decoding restores it.
TEST_P(Pipeline, DecodingRestoresTheText) {
  const json& pre = design()["pre_tokenizer"];
  const bool keeps = design()["form"] == "bytes" && design()["normalizer"].is_null() &&
                     pre.dump().find("Removed") == std::string::npos &&
                     pre.dump().find("CharDelimiter") == std::string::npos &&
                     pre.dump().find("\"add_prefix_space\":true") == std::string::npos;
  if (!keeps) return;
  const auto tokenizer = load(design());
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  for (uint64_t seed = 100; seed < 300; ++seed) {
    const std::string text = hard_text(seed, seed * 31);
    const auto ids = (*tokenizer)->encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids) << ids.error().to_string();
    EXPECT_EQ((*tokenizer)->decode(*ids, false), text) << design()["name"] << " seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Designs, Pipeline,
                         testing::Range<std::size_t>(0, pipeline_oracle()["designs"].size()));

}  // namespace
}  // namespace dsj::data
