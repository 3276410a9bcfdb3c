// Tokens back to text, by the steps of tokenizer.json's decoder. Internal to engine/data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj::data {

struct DecodeStep {
  enum class Kind {
    Replace,       ///< in each token, `find` by `text`
    ByteFallback,  ///< a run of <0x..> tokens becomes its text; U+FFFD for each when it is no UTF-8
    Fuse,          ///< all tokens become one
    Strip,         ///< from each token up to `start` of `text` in front and `stop` behind
    Metaspace,     ///< `find` is a space; in the first token it is dropped when `start` is not 0
  };
  Kind kind = Kind::Fuse;
  std::string find, text;
  std::size_t start = 0, stop = 0;
};

/// The byte that a token such as "<0x0A>" stands for; -1: it is another token.
int fallback_byte(std::string_view token);

/// The steps in order, then the tokens in a row. Without a step they are joined by spaces, as
/// Hugging Face does.
std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens);

}  // namespace dsj::data
