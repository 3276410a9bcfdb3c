// Learns a byte-level BPE vocabulary with Qwen2's pre-tokenizer from a few texts and writes it as
// tokenizer.json. For vocabularies of a few hundred tokens, because every merge recounts all pairs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"

namespace dsj::tools {

struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< as bytes; index = id; the first 256 are single bytes
  std::vector<std::pair<std::string, std::string>> merges;  ///< as bytes, in order
  std::vector<std::string> special;  ///< their ids follow the tokens'; <|endoftext|> is first
  int64_t size() const { return static_cast<int64_t>(tokens.size() + special.size()); }
  int64_t end_of_text() const { return static_cast<int64_t>(tokens.size()); }
};

/// Merges the most frequent pair (of equals the smallest in byte order) until it occurs less
/// than twice or there are `merges_max` merges. Runs of capital letters are left out, so that
/// each capital remains a token and a model can learn to spell.
Result<BpeVocabulary> learn_bpe(const std::vector<std::string>& texts, int64_t merges_max);

/// The text of tokenizer.json in Qwen2's form.
std::string tokenizer_json(const BpeVocabulary& vocabulary);
/// The text of the tokenizer_config.json for it.
std::string tokenizer_config_json(const BpeVocabulary& vocabulary, int64_t model_max_length);

}  // namespace dsj::tools
