// Learns a byte-level BPE vocabulary with Qwen2's pre-tokenizer from a few texts and writes it as
// tokenizer.json. For vocabularies of some hundred tokens: every merge counts all pairs anew.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"

namespace dsj::tools {

struct BpeVocabulary {
  std::vector<std::string> tokens;  ///< bytes; the id is the index; the first 256 are single bytes
  std::vector<std::pair<std::string, std::string>> merges;  ///< bytes, in the order learned
  std::vector<std::string> special;  ///< their ids follow the tokens'; <|endoftext|> is first
  int64_t size() const { return static_cast<int64_t>(tokens.size() + special.size()); }
  int64_t end_of_text() const { return static_cast<int64_t>(tokens.size()); }
};

/// Merges the most frequent pair (of equals the smallest in byte order) until the pair occurs less
/// than twice or there are `merges_max`. Runs of capital letters are left out, so that each capital
/// stays a token and a model can learn to spell.
Result<BpeVocabulary> learn_bpe(const std::vector<std::string>& texts, int64_t merges_max);

/// tokenizer.json as Hugging Face writes Qwen2's.
std::string tokenizer_json(const BpeVocabulary& vocabulary);
/// The tokenizer_config.json beside it.
std::string tokenizer_config_json(const BpeVocabulary& vocabulary, int64_t model_max_length);

}  // namespace dsj::tools
