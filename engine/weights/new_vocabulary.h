// The tokens that a model gets beside its own, in the files of its tokenizer and in config.json.
// Tested by: tests/engine/weights/new_tokens_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::weights {

struct NewToken {
  std::string text;
  int64_t id = 0;
  bool special = false;  ///< left out of decoded answers
};

/// The tokens that a model gets, and the rows that its embedding then has.
struct NewVocabulary {
  std::vector<NewToken> tokens;
  int64_t rows = 0;
};

/// The content of config.json, tokenizer.json, tokenizer_config.json or added_tokens.json with the
/// new tokens; that of another file, or of one that is not a JSON object, unchanged.
std::string with_vocabulary(std::string_view file_name, std::string content,
                            const NewVocabulary& vocabulary);

}  // namespace dsj::weights
