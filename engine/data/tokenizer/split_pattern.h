// A pre-tokenizer's pattern: text is cut at its matches. Internal to engine/data. Only this
// file pair calls PCRE2.
//
// tokenizer.json's patterns are written for Oniguruma with Ruby's syntax and Unicode 16. They
// are translated: \s, \w, \h and \b to Oniguruma's classes, nested classes and && to
// alternatives and lookaheads, scripts to scripts (PCRE2 would match their extensions too),
// anchors to line anchors. Characters that PCRE2 10.42 lacks are matched as older ones of the
// same category (as_unicode14). What cannot be translated (\R, \X, \G, named groups,
// backreferences) is refused by name, as is a pattern that can match the empty string.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::data {

struct Span {
  std::size_t begin = 0, end = 0;
  bool operator==(const Span&) const = default;
};

/// Translates to PCRE2's syntax. Errors: BadInput (without `where`) if it cannot. Public for
/// its test.
Result<std::string> translate_pattern(std::string_view pattern);

/// Immutable after compile(); several threads may call match().
class SplitPattern {
 public:
  /// `literal`: the pattern is plain text.
  static Result<SplitPattern> compile(std::string_view pattern, bool literal = false);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  /// Clears `matches` and fills it with all matches in well-formed UTF-8, left to right,
  /// without overlap. Errors: PCRE2 reaches one of its limits on this text.
  Status match(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Code;
  SplitPattern(std::unique_ptr<Code> code, bool literal);
  std::unique_ptr<Code> code_;
  bool literal_ = false;
};

inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The pattern of the pre-tokenizer Whitespace: \w+|[^\w\s]+ with the \w of Rust's regex, which
/// differs from Oniguruma's. The text between matches is dropped.
std::string whitespace_pattern();

}  // namespace dsj::data
