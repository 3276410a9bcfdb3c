// Finds special tokens and words added to a vocabulary in a text, before any other step of the
// tokenizer. Internal to engine/data.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dsj::data {

/// An entry of tokenizer.json's added_tokens.
struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;  ///< matches only without a word character next to it
  bool lstrip = false;       ///< the match includes white space before it
  bool rstrip = false;       ///< the match includes white space after it
  bool normalized = false;   ///< searched in normalized text, by its own normalized form
  bool special = false;
};

/// A part of a text: an added token (id >= 0) or other text.
struct Segment {
  std::string_view text;
  int32_t id = -1;
};

/// Immutable after construction; several threads may call split().
class AddedTokenSplitter {
 public:
  /// `patterns[i]`: the text to search for tokens[i] (its content or its normalized form).
  AddedTokenSplitter(std::vector<AddedToken> tokens, const std::vector<std::string>& patterns);
  bool empty() const { return tokens_.empty(); }

  /// Cuts well-formed `text` at its added tokens: the leftmost match first, the longest at a
  /// position. Appends no empty segment. `skip_special`: special tokens count as plain text.
  void split(std::string_view text, bool skip_special, std::vector<Segment>& segments) const;

 private:
  struct Match {
    std::size_t length = 0;
    const AddedToken* token = nullptr;
  };
  Match longest_at(std::string_view text, std::size_t at) const;

  struct Node {
    std::map<char, std::size_t> next;
    std::optional<std::size_t> token;
  };
  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};
};

}  // namespace dsj::data
