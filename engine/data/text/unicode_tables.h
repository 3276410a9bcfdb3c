// Which characters the libraries of Hugging Face tokenizers know, where that is neither Unicode 14
// nor what a newer PCRE2 or utf8proc knows. Each library there has a Unicode of its own. The tables
// are written by tests/oracle/unicode_tables_oracle.py, which compares them with tokenizers itself.
// Internal to engine/data. Tested by: tests/engine/data/text/unicode_test.cc
#pragma once

#include <cstdint>
#include <span>

namespace dsj::data {

/// Both ends are within. Tables are sorted by `first` and do not overlap.
struct CodePoints {
  char32_t first, last;
};

/// Characters that Unicode 14 does not know, or has in another category; `other` is the nearest one
/// that it knows of their category in Unicode 16 and their length in UTF-8, an ideograph for
/// ideographs.
struct StandIn {
  char32_t first, last, other;
};

/// Letters whose small ones lie `distance` further.
struct Lower {
  char32_t first, last;
  int32_t distance;
};

std::span<const StandIn> stand_ins();
std::span<const CodePoints> punctuation();        ///< of the pre-tokenizer Punctuation
std::span<const CodePoints> numeric();            ///< of the pre-tokenizer Digits
std::span<const CodePoints> marks_of_unicode9();  ///< what the normalizer StripAccents drops
/// Newer than Unicode 9, and part of a decomposition, a composition or canonical ordering.
std::span<const CodePoints> newer_marks();
std::span<const Lower> newer_lower();  ///< of the normalizer Lowercase, newer than Unicode 14

}  // namespace dsj::data
