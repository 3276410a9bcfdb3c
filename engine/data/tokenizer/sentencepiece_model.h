// Parser of tokenizer.model, SentencePiece's own file: a protobuf with the pieces, their scores
// and its trainer's settings. Only byte-pair models of Llama's form are supported; others are
// refused by name. For engine/data and engine/gguf.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::data {

struct SentencePieceModel {
  enum class Type { Normal = 1, Unknown = 2, Control = 3, UserDefined = 4, Unused = 5, Byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::Normal;
  };
  std::vector<Piece> pieces;  ///< the id is the index
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  int32_t unk_id = 0, bos_id = 1, eos_id = 2, pad_id = -1;  ///< -1: none
};

/// A pure function of the file's bytes. Errors: BadInput if it is not such a protobuf (with the
/// offset), if the model is not byte-pair (Unigram, Word, Char), if its normalizer changes
/// characters or removes extra white space, if white space is a suffix, or if a piece is not text.
Result<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes,
                                                     const std::string& path);

}  // namespace dsj::data
