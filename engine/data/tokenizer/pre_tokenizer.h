// Cuts normalized text into pieces, by the steps of tokenizer.json's pre_tokenizer. Internal to
// engine/data. Tested by: tests/engine/data/pipeline_oracle_test.cc
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/data/tokenizer/split_pattern.h"

namespace dsj::data {

/// Makes spaces visible, and cuts in front of each.
struct Metaspace {
  enum class Prepend { First, Always, Never };
  std::string replacement;            ///< one character
  Prepend prepend = Prepend::Always;  ///< First: only where the whole text begins
  bool split = true;
};

/// One step. Text is cut at its matches; `behavior` says what becomes of them.
struct CutStep {
  enum class Match { Nothing, Pattern, Literal, Digit, Punctuation, WhiteSpace };
  enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
  Match match = Match::Nothing;
  std::string pattern{};  ///< of Pattern and Literal
  Behavior behavior = Behavior::Isolated;
  bool invert = false;            ///< what lies between matches counts as the match
  bool add_prefix_space = false;  ///< a piece that does not start with a space gets one
  /// Comes after ByteLevel: matches are looked for in the byte alphabet's text of a piece.
  bool in_byte_alphabet = false;
  std::optional<Metaspace> metaspace{};  ///< then only this is done
};

/// A part of a text between the steps.
struct TextPiece {
  std::string_view text;              ///< a view into the text, or into TextPieces::owned
  std::size_t begin = 0;              ///< its first byte in the text, if no step rewrote it
  const uint32_t* origins = nullptr;  ///< else of each byte, and of the end, the byte in the text

  std::size_t origin(std::size_t at) const { return origins ? origins[at] : begin + at; }
};

struct TextPieces {
  std::vector<TextPiece> list;
  struct Owned {
    std::string text;
    std::vector<uint32_t> origins;
  };
  std::vector<std::unique_ptr<Owned>> owned;  ///< of rewritten pieces
};

/// Immutable after compile(); several threads may call cut().
class PreTokenizer {
 public:
  /// BadInput (without `where`): a pattern is refused.
  static Result<PreTokenizer> compile(const std::vector<CutStep>& steps);

  /// `text` must be well-formed, and outlive the pieces. Behind ByteLevel a cut may lie within a
  /// character. `first`: it is where the whole text begins. Error: a pattern reaches one of PCRE2's
  /// limits.
  Result<TextPieces> cut(std::string_view text, bool first) const;

 private:
  struct Step {
    CutStep what;
    std::optional<SplitPattern> pattern;
  };
  static Status find(const Step& step, std::string_view text, std::vector<Span>& matches);
  static Status run(const Step& step, bool first, TextPieces& pieces);
  std::vector<Step> steps_;
};

}  // namespace dsj::data
