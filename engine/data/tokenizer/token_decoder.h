// Turns tokens back into text, by the steps of tokenizer.json's decoder. Internal to engine/data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj::data {

struct DecodeStep {
  enum class Kind {
    Replace,       ///< in each token, `find` by `text`
    ByteFallback,  ///< a run of <0x..> tokens becomes its text, or U+FFFD each
    Fuse,          ///< all tokens become one
    Strip,         ///< drop up to `start` of `text` in front of each token, `stop` behind
    Metaspace,     ///< `find` is a space; the first token drops it unless `start` is 0
  };
  Kind kind = Kind::Fuse;
  std::string find, text;
  std::size_t start = 0, stop = 0;
};

/// The byte that a token such as "<0x0A>" stands for; -1: another token.
int fallback_byte(std::string_view token);

/// Applies the steps in order, then joins the tokens. Without any step it joins them by spaces, as
/// Hugging Face does.
std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens);

}  // namespace dsj::data
