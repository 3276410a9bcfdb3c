// The characters for which the libraries of Hugging Face tokenizers differ from Unicode 14, or
// from a newer PCRE2 or utf8proc. Each of these libraries uses its own version of Unicode. The
// tables are written by tests/oracle/unicode_tables_oracle.py, which compares them with
// tokenizers. Internal to engine/data. Tested by: tests/engine/data/text/unicode_test.cc
#pragma once

#include <cstdint>
#include <span>

namespace dsj::data {

/// Both ends are included. Tables are sorted by `first` and do not overlap.
struct CodePoints {
  char32_t first, last;
};

/// Characters that Unicode 14 lacks or puts into another category. `other` is the nearest
/// character of Unicode 14 with the same category in Unicode 16 and the same length in UTF-8;
/// it is an ideograph for ideographs.
struct StandIn {
  char32_t first, last, other;
};

/// Capital letters; the code point of the small letter is `distance` higher.
struct Lower {
  char32_t first, last;
  int32_t distance;
};

std::span<const StandIn> stand_ins();
std::span<const CodePoints> punctuation();        ///< for the pre-tokenizer Punctuation
std::span<const CodePoints> numeric();            ///< for the pre-tokenizer Digits
std::span<const CodePoints> marks_of_unicode9();  ///< what the normalizer StripAccents removes
/// Newer than Unicode 9; take part in a decomposition, a composition or canonical ordering.
std::span<const CodePoints> newer_marks();
std::span<const Lower> newer_lower();  ///< for the normalizer Lowercase; newer than Unicode 14

}  // namespace dsj::data
