// The content of all tokenizer file formats in one struct. tokenizer_files.h fills it,
// tokenizer.cc builds a Tokenizer from it, engine/gguf the keys of a GGUF file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/tokenizer/added_tokens.h"
#include "engine/data/tokenizer/normalizer.h"
#include "engine/data/tokenizer/pre_tokenizer.h"
#include "engine/data/tokenizer/token_decoder.h"

namespace dsj::data {

/// For tokenizers without ByteLevel: tokens are plain text, and merging starts from characters.
struct CharacterForm {
  bool byte_fallback = false;
  bool fuse_unk = false;
  std::optional<std::string> unk_token;
};

struct TokenizerSpec {
  std::string file;  ///< the path, for messages
  Normalizer normalizer;
  std::vector<CutStep> steps;               ///< the pre-tokenizer's
  std::optional<CharacterForm> characters;  ///< nullopt for byte-level tokenizers
  std::vector<DecodeStep> decoders;         ///< only with `characters`

  std::vector<std::pair<std::string, int32_t>> vocab;  ///< token as in the file, id
  std::vector<std::pair<std::string, std::string>> merges;
  /// tiktoken: a merge's rank is the id of its result.
  bool merge_by_id = false;
  bool whole_pieces = false;

  std::vector<AddedToken> added;
  std::vector<int32_t> prefix_ids, suffix_ids;  ///< added around every text

  std::optional<int32_t> bos_id, eos_id, pad_id;
  std::vector<int32_t> stop_ids;   ///< eos, and generation_config.json's eos_token_id
  std::vector<std::string> notes;  ///< remarks for the user on how the files were read
};

}  // namespace dsj::data
