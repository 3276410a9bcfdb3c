// What happens to a text before it is cut: the steps of tokenizer.json's normalizer. Internal to
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
    Form,          ///< a normal form of Unicode
    Prepend,       ///< `text` in front of what is not empty
    Replace,       ///< every match by `text`
    Lowercase,     ///< each character by its small one
    Strip,         ///< white space off the ends
    StripAccents,  ///< without combining marks
    Nmt,           ///< SentencePiece's NMT rules: no control characters, one kind of space
  };
  Kind kind = Kind::Form;
  NormalForm form = NormalForm::Nfc;
  NormalTables tables = NormalTables::Unicode9;
  std::string find{};                             ///< Replace: plain text, not empty; or
  std::shared_ptr<const SplitPattern> pattern{};  ///< a pattern
  std::string text{};
  bool left = true, right = true;  ///< Strip: at which ends
};

struct Normalizer {
  std::vector<NormalStep> steps{};

  /// True: apply() would certainly change nothing.
  bool keeps(std::string_view text) const;
  /// Well-formed text in, well-formed text out. An empty text stays empty. Error: a pattern reaches
  /// one of PCRE2's limits.
  Result<std::string> apply(std::string_view text) const;
};

/// Replaces every `find` by `text`, from the left, without overlap.
std::string replace_all(std::string_view in, std::string_view find, std::string_view text);

}  // namespace dsj::data
