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

/// Replaces spaces by a visible character, and cuts before each.
struct Metaspace {
  enum class Prepend { First, Always, Never };
  std::string replacement;            ///< one character
  Prepend prepend = Prepend::Always;  ///< First: only at the start of the whole text
  bool split = true;
};

/// One step. It cuts text at its matches and treats these as `behavior` says.
struct CutStep {
  enum class Match { Nothing, Pattern, Literal, Digit, Punctuation, WhiteSpace };
  enum class Behavior { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };
  Match match = Match::Nothing;
  std::string pattern{};  ///< for Pattern and Literal
  Behavior behavior = Behavior::Isolated;
  bool invert = false;            ///< the text between matches counts as the match
  bool add_prefix_space = false;  ///< puts a space before a piece without one
  /// The step follows ByteLevel: it matches the piece as written in the byte alphabet.
  bool in_byte_alphabet = false;
  std::optional<Metaspace> metaspace{};  ///< if set, the step does only this
};

/// A part of the text, between two steps.
struct TextPiece {
  std::string_view text;              ///< a view into the text, or into TextPieces::owned
  std::size_t begin = 0;              ///< its offset in the whole text, if no step rewrote it
  const uint32_t* origins = nullptr;  ///< else, for each byte and the end, the offset in the text

  std::size_t origin(std::size_t at) const { return origins ? origins[at] : begin + at; }
};

struct TextPieces {
  std::vector<TextPiece> list;
  struct Owned {
    std::string text;
    std::vector<uint32_t> origins;
  };
  std::vector<std::unique_ptr<Owned>> owned;  ///< the text of rewritten pieces
};

/// Immutable after compile(); several threads may call cut().
class PreTokenizer {
 public:
  /// Errors: BadInput (without `where`) if a pattern is not supported.
  static Result<PreTokenizer> compile(const std::vector<CutStep>& steps);

  /// `text` must be well-formed and outlive the pieces. After ByteLevel a cut may be inside a
  /// character. `first`: `text` begins at the start of the whole text. Errors: a pattern
  /// reaches one of PCRE2's limits.
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
