// Changes a text before it is cut: the steps of tokenizer.json's normalizer. Internal to
// engine/data. Tested by: tests/engine/data/pipeline_oracle_test.cc
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "engine/data/text/unicode.h"
#include "engine/data/tokenizer/split_pattern.h"

namespace dsj::data {

struct NormalStep {
  enum class Kind {
    Form,          ///< a normalization form of Unicode
    Prepend,       ///< puts `text` in front, unless the text is empty
    Replace,       ///< replaces every match by `text`
    Lowercase,     ///< replaces each character by its lower case
    Strip,         ///< removes white space at the ends
    StripAccents,  ///< removes combining marks
    Nmt,           ///< SentencePiece's NMT rules: removes control characters, unifies spaces
  };
  Kind kind = Kind::Form;
  NormalForm form = NormalForm::Nfc;
  NormalTables tables = NormalTables::Unicode9;
  std::string find{};                             ///< Replace: searches this plain text (not empty)
  std::shared_ptr<const SplitPattern> pattern{};  ///< or this pattern
  std::string text{};
  bool left = true, right = true;  ///< Strip: which ends
};

struct Normalizer {
  std::vector<NormalStep> steps{};

  /// True if apply() certainly changes nothing.
  bool keeps(std::string_view text) const;
  /// Well-formed text in, well-formed text out. An empty text stays empty. Errors: a pattern
  /// reaches one of PCRE2's limits.
  Result<std::string> apply(std::string_view text) const;
};

/// Replaces every occurrence of `find` by `text`, from the left, without overlap.
std::string replace_all(std::string_view in, std::string_view find, std::string_view text);

}  // namespace dsj::data
