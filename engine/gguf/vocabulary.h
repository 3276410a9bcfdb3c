// The keys of a GGUF file that describe the tokenizer: tokenizer.ggml.*. Two of llama.cpp's tokenizers
// have a form: "gpt2", byte-level BPE, and "llama", BPE of characters with scores, as SentencePiece's.
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
  Control = 3,      ///< found in a text only where special tokens are read
  UserDefined = 4,  ///< found in every text, before it is cut
  Unused = 5,
  Byte = 6,
};

/// Sets the keys for a tokenizer of a model with `vocab_size` rows of embedding: its tokens, merges or
/// scores, special ids and what is added around a text. `files`: for DIRECTORY/tokenizer.model, whose
/// scores are taken if it is of the same tokens. BadInput: it is of a kind that llama.cpp has not, or
/// that it would follow in another way. `notes`: gets sentences on what GGUF has no form for.
Status set_vocabulary(Files& files, const std::string& directory, const data::TokenizerSpec& spec,
                      int64_t vocab_size, Keys& keys, std::vector<std::string>& notes);

/// A model without a tokenizer: llama.cpp takes ids.
void set_no_vocabulary(Keys& keys);

}  // namespace dsj::gguf
