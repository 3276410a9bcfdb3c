// llama.cpp has its pre-tokenizers in its code, each by a name: tokenizer.ggml.pre. Its converter finds
// the name by the ids of one text, which only the vocabularies that it knows give. Here it is found by
// what the pre-tokenizer does.
// Tested by: tests/engine/gguf/vocabulary_test.cc
#pragma once

#include <string>

#include "common/result.h"
#include "engine/data/tokenizer/tokenizer_spec.h"

namespace dsj::gguf {

/// The name under which llama.cpp cuts texts as this byte-level tokenizer does. BadInput: it has
/// none, or merges differently.
Result<std::string> pre_tokenizer_name(const data::TokenizerSpec& spec);

}  // namespace dsj::gguf
