// Reads the files of a model directory that define its tokenizer. It reads nothing else. For
// engine/data and engine/gguf; other callers use has_tokenizer() and Tokenizer::load.
#pragma once

#include <string>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/tokenizer/tokenizer_spec.h"

namespace dsj::data {

/// Whether the directory has a file that Tokenizer::load() reads. A model without one trains on
/// pre-tokenized rows.
bool has_tokenizer(const std::string& model_dir);

/// Reads tokenizer.json, else vocab.json + merges.txt, else qwen.tiktoken, else tokenizer.model;
/// then the special tokens.
Result<TokenizerSpec> read_tokenizer_files(Files& files, const std::string& model_dir);

/// Reads one tokenizer.json (tokenizer_json.cc).
Result<TokenizerSpec> read_tokenizer_json(Files& files, const std::string& path);

/// Reads tokenizer.model and its special tokens (sentencepiece_files.cc).
Result<TokenizerSpec> read_sentencepiece(Files& files, const std::string& model_dir);

/// Adds bos, eos, pad, stop ids and tokenizer_config.json's added_tokens_decoder to `spec`
/// (special_tokens.cc). `default_special`: the token for a role that no file names; may be empty.
Status read_special_tokens(Files& files, const std::string& model_dir,
                           const std::string& default_special, TokenizerSpec& spec);

}  // namespace dsj::data
