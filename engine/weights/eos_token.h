// Changes the eos token in the files of an exported model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dsj::weights {

struct EosToken {
  std::string text;
  int32_t id = 0;
};

/// The content of a model directory's file with `eos` as its eos token; other files, and content
/// that is not a JSON object, unchanged. As transformers aligns a model with its tokenizer
/// (align_special_tokens of its trainer):
///   config.json              eos_token_id: the id; if it is a list, the id is put first
///   generation_config.json   eos_token_id: a list, with the id first
///   tokenizer_config.json    eos_token: the text
///   special_tokens_map.json  the same, if it has one
std::string with_eos(std::string_view file_name, std::string content, const EosToken& eos);

}  // namespace dsj::weights
