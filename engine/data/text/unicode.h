// UTF-8, normalization forms, and the character classes that the tokenizer needs in addition to
// its patterns. Internal to engine/data. Only this file pair calls utf8proc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::data {

/// Offset of the first byte that does not start a well-formed UTF-8 sequence; nullopt if the
/// text is well-formed. Surrogates, overlong forms and values above U+10FFFF are ill-formed.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Bytes as text. Each maximal ill-formed part becomes one U+FFFD, as in Rust's from_utf8_lossy.
std::string to_valid_utf8(std::string_view bytes);

/// Returns the code point at `offset` and its length in bytes. The text must be well-formed.
struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;
};
CodePoint code_point_at(std::string_view text, std::size_t offset);
/// The code point that ends before `end` (> 0).
CodePoint code_point_before(std::string_view text, std::size_t end);
void append_utf8(char32_t code_point, std::string& text);

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };

/// Which version of Unicode a normalization form uses.
enum class NormalTables {
  Unicode9,  ///< the tables of Hugging Face tokenizers; newer characters do not change
  Current,   ///< utf8proc's tables; equal to Python's unicodedata up to Unicode 14
};
/// Normalizes well-formed text.
std::string to_normal_form(std::string_view text, NormalForm form, NormalTables tables);
/// True if to_normal_form cannot change the text, because all its code points are low. Quick.
bool is_trivially_normal(std::string_view text, NormalForm form);

/// The text for a library that supports Unicode 14: each newer character is replaced by a
/// character of the same category and length (StandIn). Empty if the text has no newer character.
std::string as_unicode14(std::string_view text);

/// Unicode's White_Space.
bool is_white_space(char32_t code_point);
/// \w of Rust's regex, in Unicode 16: Alphabetic, M, Nd, Pc and Join_Control.
bool is_word(char32_t code_point);
bool is_numeric(char32_t code_point);  ///< where Digits splits: N of Unicode 17
bool is_punctuation(
    char32_t code_point);             ///< where Punctuation splits: P of Unicode 8, ASCII's signs
bool is_accent(char32_t code_point);  ///< what StripAccents removes: M of Unicode 9
/// Appends the character's lower case, as Rust's to_lowercase does for a single character.
void append_lower(char32_t code_point, std::string& text);

}  // namespace dsj::data
