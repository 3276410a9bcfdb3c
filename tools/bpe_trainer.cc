#include "tools/bpe_trainer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/tokenizer/split_pattern.h"

namespace dsj::tools {
namespace {

using Json = nlohmann::ordered_json;

/// A piece of text with its current tokens and the number of its occurrences.
struct Piece {
  std::vector<std::string> tokens;
  int64_t count = 0;
};

/// A piece of Qwen2's pattern may begin with one sign before its letters: ":CAB", " CAB".
bool is_capitals(std::string_view piece) {
  const auto capital = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (!piece.empty() && !capital(piece.front())) piece.remove_prefix(1);
  return std::all_of(piece.begin(), piece.end(), capital);
}

Result<std::vector<Piece>> count_pieces(const std::vector<std::string>& texts) {
  DSJ_TRY(const data::SplitPattern pattern, data::SplitPattern::compile(data::kQwen2Pattern));
  std::map<std::string, int64_t> counts;
  std::vector<data::Span> spans;
  for (const std::string& text : texts) {
    DSJ_TRY_STATUS(pattern.match(text, spans));
    for (const data::Span& span : spans) {
      const std::string piece = text.substr(span.begin, span.end - span.begin);
      if (!is_capitals(piece)) ++counts[piece];
    }
  }
  std::vector<Piece> pieces;
  for (const auto& [piece, count] : counts) {
    Piece& added = pieces.emplace_back(Piece{{}, count});
    for (const char c : piece) added.tokens.emplace_back(1, c);
  }
  return pieces;
}

using Pair = std::pair<std::string, std::string>;

/// The most frequent pair and its count, which is 0 if there is none.
std::pair<Pair, int64_t> best_pair(const std::vector<Piece>& pieces) {
  std::map<Pair, int64_t> counts;
  for (const Piece& piece : pieces) {
    for (std::size_t i = 0; i + 1 < piece.tokens.size(); ++i) {
      counts[{piece.tokens[i], piece.tokens[i + 1]}] += piece.count;
    }
  }
  std::pair<Pair, int64_t> best{{}, 0};
  for (const auto& [pair, count] : counts) {
    if (count > best.second) best = {pair, count};
  }
  return best;
}

void merge(std::vector<Piece>& pieces, const Pair& pair) {
  for (Piece& piece : pieces) {
    std::vector<std::string> merged;
    for (std::size_t i = 0; i < piece.tokens.size(); ++i) {
      if (i + 1 < piece.tokens.size() && piece.tokens[i] == pair.first &&
          piece.tokens[i + 1] == pair.second) {
        merged.push_back(pair.first + pair.second);
        ++i;
      } else {
        merged.push_back(piece.tokens[i]);
      }
    }
    piece.tokens = std::move(merged);
  }
}

Json byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", false},
          {"use_regex", false}};
}

Json added_token(const std::string& content) {
  return {{"content", content}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},    {"normalized", false},  {"special", true}};
}

}  // namespace

Result<BpeVocabulary> learn_bpe(const std::vector<std::string>& texts, int64_t merges_max) {
  DSJ_TRY(std::vector<Piece> pieces, count_pieces(texts));
  BpeVocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.emplace_back(1, static_cast<char>(byte));
  }
  while (static_cast<int64_t>(vocabulary.merges.size()) < merges_max) {
    const auto [pair, count] = best_pair(pieces);
    if (count < 2) break;
    merge(pieces, pair);
    vocabulary.merges.push_back(pair);
    const std::string token = pair.first + pair.second;
    if (std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token) ==
        vocabulary.tokens.end()) {  // two merges may result in the same token
      vocabulary.tokens.push_back(token);
    }
  }
  vocabulary.special = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return vocabulary;
}

std::string tokenizer_json(const BpeVocabulary& vocabulary) {
  Json vocab = Json::object();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocab[data::to_byte_alphabet(vocabulary.tokens[id])] = id;
  }
  Json merges = Json::array();
  for (const auto& [left, right] : vocabulary.merges) {
    merges.push_back({data::to_byte_alphabet(left), data::to_byte_alphabet(right)});
  }
  Json added = Json::array();
  for (std::size_t i = 0; i < vocabulary.special.size(); ++i) {
    Json token = {{"id", vocabulary.tokens.size() + i}};
    token.update(added_token(vocabulary.special[i]));
    added.push_back(std::move(token));
  }
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", data::kQwen2Pattern}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", {{"type", "NFC"}}},
      {"pre_tokenizer",
       {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}}},
      {"post_processor", byte_level()},
      {"decoder", byte_level()},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", false},
        {"vocab", vocab},
        {"merges", merges}}}};
  return file.dump(1) + "\n";
}

std::string tokenizer_config_json(const BpeVocabulary& vocabulary, int64_t model_max_length) {
  Json decoder = Json::object();
  for (std::size_t i = 0; i < vocabulary.special.size(); ++i) {
    decoder[std::to_string(vocabulary.tokens.size() + i)] = added_token(vocabulary.special[i]);
  }
  const Json file = {{"add_prefix_space", false},
                     {"added_tokens_decoder", decoder},
                     {"bos_token", nullptr},
                     {"clean_up_tokenization_spaces", false},
                     {"eos_token", vocabulary.special[0]},
                     {"errors", "replace"},
                     {"model_max_length", model_max_length},
                     {"pad_token", vocabulary.special[0]},
                     {"split_special_tokens", false},
                     {"tokenizer_class", "Qwen2Tokenizer"},
                     {"unk_token", nullptr}};
  return file.dump(2) + "\n";
}

}  // namespace dsj::tools
