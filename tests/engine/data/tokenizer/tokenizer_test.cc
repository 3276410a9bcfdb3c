// Which files and settings of a model directory are read, and which are refused.
#include "engine/data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "common/files/memory_files.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "tests/engine/data/support.h"
#include "tests/engine/data/text_generator.h"

namespace dsj::data {
namespace {

using nlohmann::json;

json fixture(const std::string& name) {
  return json::parse(read_file(fixtures() + "/" + name + "/tokenizer.json"));
}

/// A model directory in memory, "m".
class ModelDirectory {
 public:
  ModelDirectory() { EXPECT_TRUE(files_.make_dir("m")); }
  ModelDirectory& with(const std::string& name, const char* text) {
    return with(name, std::string(text));
  }
  ModelDirectory& with(const std::string& name, const std::string& text) {
    EXPECT_TRUE(files_.write_synced("m/" + name, text));
    return *this;
  }
  ModelDirectory& with(const std::string& name, const json& root) {
    return with(name, root.dump());
  }
  Result<std::unique_ptr<Tokenizer>> load() { return Tokenizer::load(files_, "m"); }
  std::string error() {
    const auto loaded = load();
    EXPECT_FALSE(loaded);
    return loaded ? "" : loaded.error().to_string();
  }

 private:
  MemoryFiles files_;
};

std::string vocab_of(const json& root) {
  return root["model"]["vocab"].dump();
}
std::string merges_of(const json& root) {
  std::string text = "#version: 0.2\n";
  for (const json& merge : root["model"]["merges"]) {
    text += merge.is_string() ? merge.get<std::string>()
                              : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    text += "\n";
  }
  return text;
}

const std::string kText =
    "The quick caf\u00e9, we'LL train 1234 models.\n\n  \u4f60\u597d cafe\u0301";

TEST(Tokenizer, VocabAndMergesGiveTheSameTokenizer) {
  for (const auto& [name, type] :
       {std::pair{"gpt2", "GPT2Tokenizer"}, {"qwen2", "Qwen2Tokenizer"}}) {
    json root = fixture(name);
    const auto whole = ModelDirectory()
                           .with("tokenizer.json", root.patch(json::parse(R"([
        {"op": "replace", "path": "/added_tokens", "value": []}])")))
                           .load();
    ASSERT_TRUE(whole) << whole.error().to_string();
    // A trained vocabulary ends before the added tokens.
    const auto pair = ModelDirectory()
                          .with("vocab.json", vocab_of(root))
                          .with("merges.txt", merges_of(root))
                          .with("tokenizer_config.json", json{{"tokenizer_class", type}})
                          .load();
    ASSERT_TRUE(pair) << pair.error().to_string();
    EXPECT_EQ((*pair)->encode(kText).value(), (*whole)->encode(kText).value()) << name;
    EXPECT_EQ((*pair)->decode((*pair)->encode("x y").value(), false), "x y");
    EXPECT_EQ((*pair)->eos_id(), (*pair)->token_to_id("<|endoftext|>"));
    EXPECT_TRUE((*pair)->is_special(*(*pair)->eos_id()));
  }
}

TEST(Tokenizer, VocabAndMergesAloneAreNotGuessed) {
  const json root = fixture("qwen2");
  const std::string error = ModelDirectory()
                                .with("vocab.json", vocab_of(root))
                                .with("merges.txt", merges_of(root))
                                .error();
  EXPECT_NE(error.find("the pre-tokenizer of these files is not known"), std::string::npos)
      << error;
  const std::string other = ModelDirectory()
                                .with("vocab.json", vocab_of(root))
                                .with("merges.txt", merges_of(root))
                                .with("config.json", json{{"model_type", "phi"}})
                                .error();
  EXPECT_NE(other.find("'phi' is not known"), std::string::npos) << other;
}

TEST(Tokenizer, BrokenMergesNameTheLine) {
  const std::string error = ModelDirectory()
                                .with("vocab.json", vocab_of(fixture("gpt2")))
                                .with("merges.txt", "#version: 0.2\na b\nabc\n")
                                .with("config.json", json{{"model_type", "gpt2"}})
                                .error();
  EXPECT_NE(error.find("m/merges.txt:3"), std::string::npos) << error;
}

TEST(Tokenizer, ReadsTiktokenRanks) {
  // 256 bytes, then "ab" and "abab"; base64 by hand for the two.
  std::string text;
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int byte = 0; byte < 256; ++byte) {
    text += std::string{kDigits[byte >> 2], kDigits[(byte & 3) << 4]} +
            "== " + std::to_string(byte) + "\n";
  }
  const auto tokenizer =
      ModelDirectory().with("qwen.tiktoken", text + "YWI= 256\nYWJhYg== 257\n").load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("ababab").value(), (std::vector<int32_t>{257, 256}));
  EXPECT_EQ((*tokenizer)->encode("<|im_end|>x<|extra_204|>").value(),
            (std::vector<int32_t>{260, 'x', 465}));
  EXPECT_EQ((*tokenizer)->encode("<|im_end|>", {.parse_special = false}).value().size(), 10u);
  EXPECT_EQ((*tokenizer)->eos_id(), 258);
  const std::string error = ModelDirectory().with("qwen.tiktoken", text + "YW! 256\n").error();
  EXPECT_NE(error.find("m/qwen.tiktoken:257"), std::string::npos) << error;
}

TEST(Tokenizer, FindsTheSpecialRoles) {
  const json root = fixture("qwen2");
  const int32_t end = root["added_tokens"][0]["id"];
  const auto tokenizer =
      ModelDirectory()
          .with("tokenizer.json", root)
          .with("tokenizer_config.json", json{{"eos_token", "<|im_end|>"}, {"bos_token", nullptr}})
          .with("special_tokens_map.json",
                json{{"pad_token", {{"content", "<|endoftext|>"}, {"lstrip", false}}},
                     {"eos_token", "<|endoftext|>"}})
          .with("generation_config.json", json{{"eos_token_id", {end + 2, end}}})
          .load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->eos_id(), end + 2);
  EXPECT_EQ((*tokenizer)->pad_id(), end);
  EXPECT_EQ((*tokenizer)->bos_id(), std::nullopt);
  EXPECT_EQ((*tokenizer)->stop_ids(), (std::vector<int32_t>{end + 2, end}));
  EXPECT_EQ((*tokenizer)->decode({{end, 0}}, true), (*tokenizer)->decode({{0}}, false));
}

TEST(Tokenizer, IdsFromTheModelsConfigAreTheLastResort) {
  const json root = fixture("gpt2");
  const auto tokenizer = ModelDirectory()
                             .with("tokenizer.json", root)
                             .with("config.json", json{{"eos_token_id", 5}, {"pad_token_id", -1}})
                             .load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->eos_id(), 5);
  EXPECT_EQ((*tokenizer)->pad_id(), std::nullopt);
  const std::string error = ModelDirectory()
                                .with("tokenizer.json", root)
                                .with("config.json", json{{"eos_token_id", 999999}})
                                .error();
  EXPECT_NE(error.find("eos_token_id 999999"), std::string::npos) << error;
}

TEST(Tokenizer, TheConfigsFlagsOfAnAddedTokenTakePrecedence) {
  const json root = fixture("gpt2");
  const auto& tool = root["added_tokens"].back();  // <tool>
  const json decoder = {{std::to_string(tool["id"].get<int>()),
                         {{"content", "<tool>"}, {"lstrip", true}, {"special", true}}}};
  const auto tokenizer = ModelDirectory()
                             .with("tokenizer.json", root)
                             .with("tokenizer_config.json", json{{"added_tokens_decoder", decoder}})
                             .load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("   <tool>").value(),
            std::vector<int32_t>{tool["id"].get<int32_t>()});
  EXPECT_TRUE((*tokenizer)->is_special(tool["id"]));
}

TEST(Tokenizer, RefusesByName) {
  struct Case {
    const char* path;
    const char* value;
    const char* says;
  };
  const json root = fixture("llama3");
  for (const Case& c : {
           Case{"/model/type", R"("Unigram")", "model.type is 'Unigram'"},
           {"/model/type", R"("WordPiece")", "model.type is 'WordPiece'"},
           {"/model/dropout", "0.1", "model.dropout"},
           {"/model/end_of_word_suffix", R"("</w>")", "model.end_of_word_suffix"},
           {"/model/strange", "1", "model.strange"},
           {"/model/vocab/x", R"("y")", "model.vocab['x']"},
           {"/model/merges/3", R"("a b c")", "model.merges[3]"},
           {"/model/merges/3", R"(["\u0120", "nosuchtoken"])", "'nosuchtoken' is not in"},
           {"/normalizer", R"({"type": "Precompiled"})", "normalizer is 'Precompiled'"},
           {"/normalizer", R"({"type": "Replace", "pattern": {"Regex": "a*"}, "content": ""})",
            "empty string"},
           {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Prepend"}]})",
            "normalizer.normalizers[0].prepend is null"},
           {"/pre_tokenizer", R"({"type": "Metaspace"})", "pre_tokenizer.replacement is null"},
           {"/pre_tokenizer", R"({"type": "UnicodeScripts"})", "pre_tokenizer is 'UnicodeScripts'"},
           {"/pre_tokenizer/pretokenizers/0/behavior", R"("Merged")", "behavior is \"Merged\""},
           {"/pre_tokenizer/pretokenizers/0/pattern/Regex", R"("\\R+")", "\\R is not supported"},
           {"/pre_tokenizer/pretokenizers/0", R"({"type": "ByteLevel", "add_prefix_space": false})",
            "is a second ByteLevel"},
           {"/post_processor", R"({"type": "RobertaProcessing"})", "post_processor.cls"},
           {"/decoder", R"({"type": "WordPiece"})", "decoder is 'WordPiece'"},
           {"/added_tokens/0/id", "2", "Hugging Face's loader gives it"},
           {"/added_tokens/0/shape", "2", "added_tokens[0].shape"},
       }) {
    const json patch = {{{"op", "add"}, {"path", c.path}, {"value", json::parse(c.value)}}};
    const std::string path = c.path;
    json changed = root;
    if (path.starts_with("/model/merges/")) {
      changed["model"]["merges"][3] = json::parse(c.value);
    } else {
      changed = root.patch(patch);
    }
    const std::string error = ModelDirectory().with("tokenizer.json", changed).error();
    EXPECT_NE(error.find(c.says), std::string::npos) << c.path << ": " << error;
    EXPECT_NE(error.find("m/tokenizer.json"), std::string::npos) << error;
  }
}

TEST(Tokenizer, RefusesStepsThatLengthenTextWithoutBound) {
  json root = fixture("gpt2");
  json step = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}};
  step["content"] = std::string(300, 'a');
  root["normalizer"] = step;
  EXPECT_NE(ModelDirectory().with("tokenizer.json", root).error().find("expected a short text"),
            std::string::npos);
  step["content"] = std::string(64, 'a');
  root["normalizer"] = {{"type", "Sequence"}, {"normalizers", {step, step, step}}};
  EXPECT_NE(ModelDirectory()
                .with("tokenizer.json", root)
                .error()
                .find("normalizer.normalizers[2] lengthens text too much"),
            std::string::npos);
}

TEST(Tokenizer, AnyDamageIsRefusedOrHarmless) {
  const std::string good = read_file(fixtures() + "/llama3/tokenizer.json");
  // Damage the settings before and after the vocabulary, which is half of the file.
  const std::size_t vocab = good.find("\"vocab\"");
  int loaded = 0, refused = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    Lcg r(seed);
    std::string text = good;
    const std::size_t at = r.below(vocab);
    static constexpr std::string_view kBytes = "[]{},:\"\\ 0n-\xFF";
    if (r.below(2) == 0) {
      text[at] = r.pick(kBytes);
    } else {
      text.erase(at, 1 + r.below(8));
    }
    const auto tokenizer = ModelDirectory().with("tokenizer.json", text).load();
    if (tokenizer) {
      ++loaded;
      EXPECT_TRUE((*tokenizer)->encode(kText));
    } else {
      ++refused;
      EXPECT_FALSE(find_invalid_utf8(tokenizer.error().to_string()));
    }
  }
  EXPECT_GT(refused, 60);
  EXPECT_GT(loaded, 0);
}

TEST(Tokenizer, AnIdFarBeyondTheVocabularyIsRefused) {
  json root = fixture("gpt2");
  root["model"]["vocab"]["!"] = INT32_MAX;
  const std::string error = ModelDirectory().with("tokenizer.json", root).error();
  EXPECT_NE(error.find("token '!' has id 2147483647"), std::string::npos) << error;
}

TEST(Tokenizer, AMillionBracketsAreRefused) {
  const std::string deep = R"({"model": {"vocab": {"a": )" + std::string(1'000'000, '[');
  EXPECT_NE(ModelDirectory().with("tokenizer.json", deep).error().find("nested too deep"),
            std::string::npos);
}

TEST(Tokenizer, RefusesAVocabularyWithoutAllBytes) {
  json root = fixture("gpt2");
  root["model"]["vocab"].erase("\u0120");  // the space
  root["model"]["merges"] = json::array();
  root["added_tokens"] = json::array();
  const std::string error = ModelDirectory().with("tokenizer.json", root).error();
  EXPECT_NE(error.find("lacks 1 of the 243 bytes that text can have (the first is 32)"),
            std::string::npos)
      << error;
}

TEST(Tokenizer, AVocabularyNeedsNoBytesThatUtf8NeverHas) {
  json root = fixture("gpt2");
  root["added_tokens"] = json::array();
  const auto whole = ModelDirectory().with("tokenizer.json", root).load();
  for (int byte = 0; byte < 256; ++byte) {
    if (byte != 0xC0 && byte != 0xC1 && byte < 0xF5) continue;
    root["model"]["vocab"].erase(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  }
  const auto tokenizer = ModelDirectory().with("tokenizer.json", root).load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode(kText).value(), (*whole)->encode(kText).value());
}

TEST(Tokenizer, AByteLevelPostProcessorAddsNoBosForAnyValueOfTheSwitch) {
  const auto tokenizer = ModelDirectory()
                             .with("tokenizer.json", fixture("gpt2"))
                             .with("tokenizer_config.json", json{{"add_bos_token", true}})
                             .load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  EXPECT_EQ((*tokenizer)->encode("a").value().size(), 1u);
  ASSERT_EQ((*tokenizer)->notes().size(), 1u);
  EXPECT_NE((*tokenizer)->notes()[0].find("adds no token"), std::string::npos);
}

TEST(Tokenizer, WithoutATokenizerJsonTheSwitchesDetermineThePostProcessor) {
  const json root = fixture("gpt2");
  const auto tokenizer =
      ModelDirectory()
          .with("vocab.json", vocab_of(root))
          .with("merges.txt", merges_of(root))
          .with("tokenizer_config.json", json{{"tokenizer_class", "GPT2Tokenizer"},
                                              {"add_bos_token", true},
                                              {"bos_token", "<|endoftext|>"}})
          .load();
  ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
  const auto ids = (*tokenizer)->encode("a").value();
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_EQ(ids[0], (*tokenizer)->bos_id());
}

TEST(Tokenizer, RefusesConfigsThatContradict) {
  const json root = fixture("gpt2");
  struct Case {
    json config;
    const char* says;
  };
  for (const Case& c : {Case{{{"add_prefix_space", true}}, "add_prefix_space"},
                        {{{"eos_token", "</s>"}}, "eos_token '</s>' is not a token"},
                        {{{"added_tokens_decoder", {{"3", {{"content", "<tool>"}}}}}},
                         "token '<tool>' has id 3"}}) {
    const std::string error = ModelDirectory()
                                  .with("tokenizer.json", root)
                                  .with("tokenizer_config.json", c.config)
                                  .error();
    EXPECT_NE(error.find(c.says), std::string::npos) << error;
  }
}

/// The offsets of all characters, and the end.
std::vector<size_t> character_starts(const std::string& text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at <= text.size(); ++at)
    if (at == text.size() || (text[at] & 0xC0) != 0x80) starts.push_back(at);
  return starts;
}

/// Checks where ids begin by encoding prefixes of the text that end with a token.
TEST(Tokenizer, MarksCountTheIdsThatBeginBeforeThem) {
  const TextGenerator texts(read_ranges(fixtures() + "/unicode14.txt"));
  for (const std::string name : {"gpt2", "qwen2", "llama3"}) {
    const auto tokenizer = Tokenizer::load(fixtures() + "/" + name).value();
    for (uint64_t seed = 0; seed < 150; ++seed) {
      const std::string text = texts.make(seed, 3) + "<|im_end|>" + texts.make(seed, 4);
      const std::vector<size_t> marks = character_starts(text);
      const EncodeOptions plain{.add_special_tokens = false};
      const auto marked = tokenizer->encode(text, marks, plain).value();
      EXPECT_EQ(marked.ids, tokenizer->encode(text, plain).value()) << name << seed;
      ASSERT_EQ(marked.firsts.size(), marks.size());
      EXPECT_EQ(marked.firsts.front(), 0u);
      EXPECT_EQ(marked.firsts.back(), marked.ids.size());
      EXPECT_TRUE(std::ranges::is_sorted(marked.firsts));
      if (is_trivially_normal(text, NormalForm::Nfc)) {
        // Byte-level tokens are the text's bytes in order, so their lengths give the offsets.
        size_t begin = 0;
        std::vector<size_t> begins;
        for (const int32_t id : marked.ids) {
          begins.push_back(begin);
          const std::string token = *tokenizer->id_to_token(id);
          begin += from_byte_alphabet(token).value_or(token).size();
        }
        EXPECT_EQ(begin, text.size()) << name << seed;
        for (size_t i = 0; i < marks.size(); ++i) {
          EXPECT_EQ(static_cast<std::ptrdiff_t>(marked.firsts[i]),
                    std::ranges::lower_bound(begins, marks[i]) - begins.begin())
              << name << " " << seed << " byte " << marks[i];
        }
      }
      for (const size_t limit : {size_t{0}, size_t{1}, marked.ids.size() / 2, marked.ids.size()}) {
        const auto cut =
            tokenizer
                ->encode(text, marks,
                         {.add_special_tokens = false, .max_length = static_cast<int64_t>(limit)})
                .value();
        EXPECT_TRUE(std::ranges::equal(cut.ids, std::span(marked.ids).first(limit)));
        for (size_t i = 0; i < marks.size(); ++i)
          EXPECT_EQ(cut.firsts[i], std::min(marked.firsts[i], limit));
      }
    }
  }
}

TEST(Tokenizer, AMarkRecordsWhetherATokenExtendsOverIt) {
  const auto tokenizer = Tokenizer::load(fixtures() + "/gpt2").value();
  const std::string text = "of the model training 2024 x";
  const auto marked = tokenizer->encode(text, character_starts(text), {}).value();
  // The last id before a mark extends over it if encoding only the text before it differs.
  for (size_t at = 1; at < text.size(); ++at) {
    const auto before = tokenizer->encode(text.substr(0, at)).value();
    const std::vector<int32_t> same(
        marked.ids.begin(), marked.ids.begin() + static_cast<std::ptrdiff_t>(marked.firsts[at]));
    EXPECT_EQ(!marked.crossed[at], before == same && tokenizer->decode(before, false).size() == at)
        << at;
  }
  EXPECT_FALSE(marked.crossed.front() || marked.crossed.back());
}

TEST(Tokenizer, MarksWorkInSentencePiecesForm) {
  const std::string folder = fixtures() + "/spm";
  for (const char* file : {"tokenizer.json", "tokenizer.model"}) {
    ModelDirectory directory;
    const auto tokenizer = directory.with(file, read_file(folder + "/" + file)).load();
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    for (const std::string text : {"Hello wide world", " spaces  around ", "x\ny z\u4f60\u597d!"}) {
      const std::vector<size_t> marks = character_starts(text);
      const EncodeOptions plain{.add_special_tokens = false};
      const auto marked = (*tokenizer)->encode(text, marks, plain).value();
      EXPECT_EQ(marked.ids, (*tokenizer)->encode(text, plain).value());
      EXPECT_EQ(marked.firsts.back(), marked.ids.size());
      EXPECT_TRUE(std::ranges::is_sorted(marked.firsts));
      // A prefix that ends before a space has as many ids as the whole text has before it.
      for (size_t i = 1; i + 1 < marks.size(); ++i) {
        const size_t at = marks[i];
        if (text[at] != ' ' || text[at - 1] == ' ') continue;
        EXPECT_EQ(marked.firsts[i], (*tokenizer)->encode(text.substr(0, at), plain)->size())
            << folder << " '" << text.substr(0, at) << "'";
      }
    }
  }
}

/// The ids that transformers 4.57 adds around a text with LlamaTokenizerFast, and that every
/// version adds with other classes (AutoTokenizer on such directories).
TEST(Tokenizer, BosAndEosSwitchesAreFollowedIfTransformersRebuildsThePostProcessor) {
  const std::string bos = "<|begin_of_text|>", eos = "<|end_of_text|>";
  const json root = fixture("llama3");
  const auto tokenizer_of = [&](const json& config) {
    ModelDirectory directory;
    return directory.with("tokenizer.json", root).with("tokenizer_config.json", config).load();
  };
  struct Case {
    const char* tokenizer_class;
    json bos, eos;
    bool has_bos, has_eos, noted;
  };
  for (const Case& c : {Case{"LlamaTokenizerFast", false, nullptr, false, false, true},
                        {"LlamaTokenizerFast", false, false, false, false, true},
                        {"LlamaTokenizer", true, nullptr, true, false, false},
                        {"LlamaTokenizerFast", true, true, true, true, true},
                        {"CodeLlamaTokenizerFast", false, true, false, true, true},
                        {"LlamaTokenizerFast", nullptr, nullptr, true, false, false},
                        {"PreTrainedTokenizerFast", false, nullptr, true, false, true},
                        {"PreTrainedTokenizerFast", true, false, true, false, false},
                        {"GPT2TokenizerFast", nullptr, nullptr, true, false, false}}) {
    json config = {{"tokenizer_class", c.tokenizer_class}, {"bos_token", bos}, {"eos_token", eos}};
    if (!c.bos.is_null()) config["add_bos_token"] = c.bos;
    if (!c.eos.is_null()) config["add_eos_token"] = c.eos;
    const auto tokenizer = tokenizer_of(config);
    ASSERT_TRUE(tokenizer) << tokenizer.error().to_string();
    std::vector<int32_t> expected =
        (*tokenizer)->encode("hello", {.add_special_tokens = false}).value();
    if (c.has_bos) expected.insert(expected.begin(), *(*tokenizer)->token_to_id(bos));
    if (c.has_eos) expected.push_back(*(*tokenizer)->token_to_id(eos));
    EXPECT_EQ((*tokenizer)->encode("hello").value(), expected) << config;
    EXPECT_EQ(!(*tokenizer)->notes().empty(), c.noted) << config;
  }
  const auto without =
      tokenizer_of({{"tokenizer_class", "LlamaTokenizerFast"}, {"add_eos_token", true}});
  ASSERT_FALSE(without);
  EXPECT_NE(without.error().message.find("add_eos_token is true, but there is no eos_token"),
            std::string::npos);
}

TEST(Tokenizer, AnotherEosEndsAnswersAndTheOldOneStillStops) {
  ModelDirectory directory;
  const auto tokenizer = directory.with("tokenizer.json", fixture("qwen2"))
                             .with("tokenizer_config.json", json{{"eos_token", "<|endoftext|>"}})
                             .load()
                             .value();
  const int32_t before = *tokenizer->eos_id(), end = *tokenizer->token_to_id("<|im_end|>");
  ASSERT_TRUE(tokenizer->set_eos("<|im_end|>"));
  EXPECT_EQ(tokenizer->eos_id(), end);
  EXPECT_EQ(tokenizer->stop_ids(), (std::vector<int32_t>{end, before}));
  const auto unknown = tokenizer->set_eos("<|no|>");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("has no token '<|no|>'"), std::string::npos);
  EXPECT_EQ(tokenizer->eos_id(), end);
}

TEST(Tokenizer, ErrorsNameTheFormOfOtherFiles) {
  const std::string error =
      ModelDirectory()
          .with("tokenizer.json",
                "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 7031645\n")
          .error();
  EXPECT_NE(error.find("tokenizer.json: is a Git LFS pointer"), std::string::npos) << error;
  EXPECT_NE(error.find("git lfs pull"), std::string::npos) << error;
}

TEST(Tokenizer, TheErrorWithoutATokenizerListsTheFiles) {
  EXPECT_NE(ModelDirectory().error().find("holds no tokenizer"), std::string::npos);
  const std::string error = ModelDirectory().with("vocab.txt", "x").error();
  EXPECT_NE(error.find("found vocab.txt"), std::string::npos) << error;
  EXPECT_NE(ModelDirectory().with("tokenizer.json", "{\n  1").error().find("m/tokenizer.json:2:"),
            std::string::npos);
}

TEST(Tokenizer, TextThatIsNotUtf8IsAnError) {
  const auto tokenizer = ModelDirectory().with("tokenizer.json", fixture("gpt2")).load();
  const auto ids = (*tokenizer)->encode("abc\xFFz");
  ASSERT_FALSE(ids);
  EXPECT_NE(ids.error().message.find("byte 3 of 5"), std::string::npos);
}

TEST(Tokenizer, TheLengthLimitKeepsThePostProcessorsTokens) {
  const auto tokenizer = ModelDirectory().with("tokenizer.json", fixture("llama3")).load();
  const auto whole = (*tokenizer)->encode(kText).value();
  const auto cut = (*tokenizer)->encode(kText, {.max_length = 4}).value();
  EXPECT_EQ(cut, std::vector<int32_t>(whole.begin(), whole.begin() + 4));
  EXPECT_EQ(whole.front(), (*tokenizer)->token_to_id("<|begin_of_text|>"));
  const auto bare =
      (*tokenizer)->encode(kText, {.add_special_tokens = false, .max_length = 4}).value();
  EXPECT_EQ(bare, std::vector<int32_t>(whole.begin() + 1, whole.begin() + 5));
}

TEST(Tokenizer, SeveralThreadsGetTheSameIds) {
  const auto tokenizer = ModelDirectory().with("tokenizer.json", fixture("qwen2")).load();
  const auto expected = (*tokenizer)->encode(kText).value();
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        wrong += (*tokenizer)->encode(kText).value() != expected;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace dsj::data
