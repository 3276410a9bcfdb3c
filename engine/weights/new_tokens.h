// Adds tokens to a model: to its tokenizer's files, and rows to its embedding and output layer.
// Processes one tensor at a time. Without libtorch. Called by `dsj add-tokens`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "engine/weights/new_vocabulary.h"

namespace dsj::weights {

struct AddTokensOptions {
  std::string model;   ///< a model directory
  std::string output;  ///< must not exist yet
  std::vector<std::string> tokens;
  bool special = false;
  int64_t multiple = 64;  ///< of the embedding's rows, if it grows
  int64_t shard_bytes_max = kShardBytesMax;
};

struct AddedTokens {
  std::vector<NewToken> added;
  std::vector<std::string> known;     ///< tokens that the tokenizer had
  int64_t rows_before = 0, rows = 0;  ///< of the embedding; equal if there was room
  std::vector<std::string> left_out;  ///< buffers that are not weights
};

/// Ids are those of transformers' add_tokens. The embedding grows only if an id has no row; each
/// new row is the mean of the old ones, around which transformers' resize_token_embeddings draws
/// its rows with a variance of 1e-9. Errors: BadInput if the model has no tokenizer.json, an empty
/// token is given or all are known.
Result<AddedTokens> add_tokens(Files& files, const AddTokensOptions& options);

}  // namespace dsj::weights
