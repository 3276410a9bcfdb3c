// The keys of a GGUF file that describe the tokenizer: tokenizer.ggml.*. Two of llama.cpp's
// tokenizers are supported: "gpt2", byte-level BPE, and "llama", character BPE with scores, as
// SentencePiece.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/tokenizer/tokenizer_spec.h"
#include "engine/gguf/format.h"

namespace dsj::gguf {

/// llama.cpp's kinds of tokens.
enum class TokenKind : int32_t {
  Normal = 1,
  Unknown = 2,
  Control = 3,      ///< matched only if special tokens are parsed
  UserDefined = 4,  ///< matched in every text, before splitting
  Unused = 5,
  Byte = 6,
};

/// Sets the keys for a tokenizer of a model with `vocab_size` embedding rows: tokens, merges or
/// scores, special ids and what is added around a text. `files`: to read scores from
/// DIRECTORY/tokenizer.model if its tokens match. BadInput: llama.cpp has no such kind of
/// tokenizer, or would behave differently. Adds to `notes` what GGUF cannot represent.
Status set_vocabulary(Files& files, const std::string& directory, const data::TokenizerSpec& spec,
                      int64_t vocab_size, Keys& keys, std::vector<std::string>& notes);

/// Sets the keys of a model without a tokenizer: llama.cpp takes ids.
void set_no_vocabulary(Keys& keys);

}  // namespace dsj::gguf
