// Another eos token for an exported model: where its files name the old one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dsj::weights {

struct EosToken {
  std::string text;
  int32_t id = 0;
};

/// The content of a model directory's file with `eos` as its eos token; a file of another name, or
/// one that is no JSON object, as it is. As transformers aligns a model with its tokenizer
/// (align_special_tokens of its trainer):
///   config.json              eos_token_id: the id; of a list, the id before the others
///   generation_config.json   eos_token_id: a list, the id before the others
///   tokenizer_config.json    eos_token: the text
///   special_tokens_map.json  the same, if it has one
std::string with_eos(std::string_view file_name, std::string content, const EosToken& eos);

}  // namespace dsj::weights
