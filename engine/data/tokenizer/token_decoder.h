// Turns tokens back into text, by the steps of tokenizer.json's decoder. Internal to engine/data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj::data {

struct DecodeStep {
  enum class Kind {
    Replace,       ///< replaces `find` by `text` in each token
    ByteFallback,  ///< a run of <0x..> tokens becomes its text, or one U+FFFD each
    Fuse,          ///< joins all tokens
    Strip,         ///< removes up to `start` of `text` before each token, `stop` after
    Metaspace,     ///< `find` becomes a space, removed from the first token unless `start` is 0
  };
  Kind kind = Kind::Fuse;
  std::string find, text;
  std::size_t start = 0, stop = 0;
};

/// The byte that a token such as "<0x0A>" represents; -1 for any other token.
int fallback_byte(std::string_view token);

/// Applies the steps in order, then joins the tokens. Without steps it joins them with spaces,
/// as Hugging Face does.
std::string decode_tokens(const std::vector<DecodeStep>& steps, std::vector<std::string> tokens);

}  // namespace dsj::data
