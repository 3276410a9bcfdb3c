// llama.cpp's pre-tokenizers are built in and selected by name: tokenizer.ggml.pre. Its converter
// finds the name by the ids of a fixed text, which works only for known vocabularies. Here the name
// is found by what the pre-tokenizer does.
// Tested by: tests/engine/gguf/vocabulary_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "engine/data/tokenizer/tokenizer_spec.h"

namespace dsj::gguf {

/// The name with which llama.cpp splits texts as this byte-level tokenizer does. BadInput: there is
/// none, or llama.cpp merges differently.
Result<std::string> pre_tokenizer_name(const data::TokenizerSpec& spec);

}  // namespace dsj::gguf
