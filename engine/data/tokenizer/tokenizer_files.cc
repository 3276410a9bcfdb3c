#include "engine/data/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "engine/data/text/text_file.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/tokenizer/split_pattern.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr const char* kEndOfText = "<|endoftext|>";

/// The class in tokenizer_config.json, else the model_type in config.json, else empty.
Result<std::string> tokenizer_class(Files& files, const std::string& dir) {
  for (const auto& [file, key] : {std::pair{"/tokenizer_config.json", "tokenizer_class"},
                                  std::pair{"/config.json", "model_type"}}) {
    DSJ_TRY(const bool exists, file_exists(files, dir + file));
    if (!exists) continue;
    DSJ_TRY(const json root, read_json_file(files, dir + file));
    if (root.is_object() && root.contains(key) && root[key].is_string()) {
      return root[key].get<std::string>();
    }
  }
  return std::string();
}

Result<bool> config_flag(Files& files, const std::string& dir, const char* key) {
  const std::string file = dir + "/tokenizer_config.json";
  DSJ_TRY(const bool exists, file_exists(files, file));
  if (!exists) return false;
  DSJ_TRY(const json root, read_json_file(files, file));
  return root.is_object() && root.contains(key) && root[key] == true;
}

Status read_vocab_json(Files& files, const std::string& path, TokenizerSpec& spec) {
  DSJ_TRY(const json root, read_json_file(files, path));
  if (!root.is_object()) return bad_input("is not an object of token: id", path);
  for (const auto& [token, id] : root.items()) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      return bad_input("token '" + token + "' has no id: " + id.dump(), path);
    }
    spec.vocab.emplace_back(token, id.get<int32_t>());
  }
  return {};
}

Status read_merges_txt(Files& files, const std::string& path, TokenizerSpec& spec) {
  DSJ_TRY(const std::string text, files.read_all(path));
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const auto space = line.find(' ');
    if (space == line.npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != line.npos) {
      return bad_input(
          "is not a merge, \"left right\": '" + to_valid_utf8(line.substr(0, 80)) + "'",
          path + ":" + std::to_string(number));
    }
    spec.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  return {};
}

Result<TokenizerSpec> read_vocab_and_merges(Files& files, const std::string& dir) {
  TokenizerSpec spec;
  spec.file = dir + "/vocab.json";
  DSJ_TRY_STATUS(read_vocab_json(files, spec.file, spec));
  DSJ_TRY_STATUS(read_merges_txt(files, dir + "/merges.txt", spec));
  DSJ_TRY(const std::string name, tokenizer_class(files, dir));
  const auto end_of_text =
      std::ranges::find(spec.vocab, kEndOfText, &std::pair<std::string, int32_t>::first);
  const bool gpt2 =
      name == "GPT2Tokenizer" || name == "GPT2TokenizerFast" || name == "gpt2" ||
      // Without a class: GPT-2's vocabulary ends with <|endoftext|>; Qwen2's lacks this token.
      (name.empty() && end_of_text != spec.vocab.end() &&
       end_of_text->second + 1 == static_cast<int32_t>(spec.vocab.size()));
  const bool qwen2 = name == "Qwen2Tokenizer" || name == "Qwen2TokenizerFast" || name == "qwen2" ||
                     name == "qwen3";
  if (!gpt2 && !qwen2) {
    return bad_input("the pre-tokenizer of these files is not known" +
                         (name.empty() ? std::string() : " ('" + name + "' is not known)"),
                     dir + "/vocab.json",
                     "add tokenizer.json, or tokenizer_class GPT2Tokenizer or Qwen2Tokenizer to "
                     "tokenizer_config.json");
  }
  CutStep step{.match = CutStep::Match::Pattern,
               .pattern = std::string(gpt2 ? kGpt2Pattern : kQwen2Pattern)};
  DSJ_TRY(step.add_prefix_space, config_flag(files, dir, "add_prefix_space"));
  spec.steps.push_back(step);
  if (qwen2) spec.normalizer.steps.push_back({.form = NormalForm::Nfc});
  DSJ_TRY_STATUS(read_special_tokens(files, dir, kEndOfText, spec));
  return spec;
}

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr auto kValue = [] {
    std::array<int8_t, 256> value{};
    value.fill(-1);
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (std::size_t i = 0; i < kDigits.size(); ++i) {
      value[static_cast<uint8_t>(kDigits[i])] = static_cast<int8_t>(i);
    }
    return value;
  }();
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int value = kValue[static_cast<uint8_t>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

Status read_ranks(Files& files, const std::string& path, TokenizerSpec& spec) {
  DSJ_TRY(const std::string text, files.read_all(path));
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    const auto space = line.find(' ');
    const auto bytes = from_base64(line.substr(0, space));
    const std::string_view rank = space == line.npos ? "" : line.substr(space + 1);
    if (!bytes || bytes->empty() || rank.empty() || rank.size() > 9 ||
        rank.find_first_not_of("0123456789") != rank.npos) {
      return bad_input("is not \"base64 rank\": '" + to_valid_utf8(line.substr(0, 80)) + "'",
                       path + ":" + std::to_string(number));
    }
    spec.vocab.emplace_back(to_byte_alphabet(*bytes), std::stoi(std::string(rank)));
  }
  return {};
}

/// Qwen's first tokenizer: ranks are in the file, its 208 special tokens in its Python code.
Result<TokenizerSpec> read_qwen_tiktoken(Files& files, const std::string& dir) {
  TokenizerSpec spec;
  spec.file = dir + "/qwen.tiktoken";
  DSJ_TRY_STATUS(read_ranks(files, spec.file, spec));
  // Its Python code calls unicodedata.
  spec.normalizer.steps.push_back({.form = NormalForm::Nfc, .tables = NormalTables::Current});
  spec.merge_by_id = spec.whole_pieces = true;
  spec.steps.push_back({.match = CutStep::Match::Pattern, .pattern = std::string(kQwen2Pattern)});
  std::vector<std::string> special = {kEndOfText, "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) special.push_back("<|extra_" + std::to_string(i) + "|>");
  auto id = static_cast<int32_t>(spec.vocab.size());
  for (const std::string& token : special) {
    spec.added.push_back({.id = id++, .content = token, .special = true});
  }
  DSJ_TRY_STATUS(read_special_tokens(files, dir, kEndOfText, spec));
  return spec;
}

}  // namespace

Result<TokenizerSpec> read_tokenizer_files(Files& files, const std::string& dir) {
  std::string found;
  std::map<std::string, bool> has;
  for (const char* name : {"tokenizer.json", "vocab.json", "merges.txt", "qwen.tiktoken",
                           "tokenizer.model", "vocab.txt"}) {
    DSJ_TRY(has[name], file_exists(files, dir + "/" + name));
    if (has[name]) found += std::string(found.empty() ? "" : ", ") + name;
  }
  if (has["tokenizer.json"]) {
    DSJ_TRY(TokenizerSpec spec, read_tokenizer_json(files, dir + "/tokenizer.json"));
    DSJ_TRY_STATUS(read_special_tokens(files, dir, "", spec));
    return spec;
  }
  if (has["vocab.json"] && has["merges.txt"]) return read_vocab_and_merges(files, dir);
  if (has["qwen.tiktoken"]) return read_qwen_tiktoken(files, dir);
  if (has["tokenizer.model"]) return read_sentencepiece(files, dir);
  return bad_input(
      "holds no tokenizer: neither tokenizer.json, nor vocab.json with merges.txt, "
      "nor qwen.tiktoken, nor tokenizer.model" +
          (found.empty() ? std::string() : "; found " + found),
      dir, found.empty() ? "" : "WordPiece is not supported");
}

bool has_tokenizer(const std::string& model_dir) {
  std::error_code ignored;
  for (const char* name : {"tokenizer.json", "vocab.json", "qwen.tiktoken", "tokenizer.model"})
    if (std::filesystem::exists(model_dir + "/" + name, ignored)) return true;
  return false;
}

}  // namespace dsj::data
