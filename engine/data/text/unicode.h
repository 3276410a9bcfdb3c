// UTF-8, normal forms, and the character classes that the tokenizer needs beside its patterns.
// Internal to engine/data. Only this file pair calls utf8proc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::data {

/// Offset of the first byte that does not start a well-formed UTF-8 sequence; nullopt: there is
/// none. Surrogates, overlong forms and values above U+10FFFF are ill-formed.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Bytes as text. Each maximal ill-formed part becomes one U+FFFD, as in Rust's from_utf8_lossy.
std::string to_valid_utf8(std::string_view bytes);

/// The code point at `offset`, and its length in bytes. The text must be well-formed.
struct CodePoint {
  char32_t value = 0;
  std::size_t length = 0;
};
CodePoint code_point_at(std::string_view text, std::size_t offset);
/// The code point that ends before `end` (> 0).
CodePoint code_point_before(std::string_view text, std::size_t end);
void append_utf8(char32_t code_point, std::string& text);

enum class NormalForm { Nfc, Nfd, Nfkc, Nfkd };

/// Which characters a normal form knows.
enum class NormalTables {
  Unicode9,  ///< Hugging Face tokenizers' tables: of later characters each stays as it is
  Current,   ///< utf8proc's tables; Python's unicodedata on characters of Unicode 14
};
/// Well-formed text in a normal form.
std::string to_normal_form(std::string_view text, NormalForm form, NormalTables tables);
/// True: to_normal_form would certainly change nothing, because no code point is high enough.
bool is_trivially_normal(std::string_view text, NormalForm form);

/// The text for a library that knows Unicode 14: each character that is newer becomes another one
/// of the same category and length (StandIn). Empty: the text has no newer one.
std::string as_unicode14(std::string_view text);

/// Unicode's White_Space.
bool is_white_space(char32_t code_point);
/// \w in Rust's regex, of Unicode 16: Alphabetic, M, Nd, Pc and Join_Control.
bool is_word(char32_t code_point);
bool is_numeric(char32_t code_point);  ///< what Digits cuts at: N of Unicode 17
bool is_punctuation(
    char32_t code_point);             ///< what Punctuation cuts at: P of Unicode 8, ASCII's signs
bool is_accent(char32_t code_point);  ///< what StripAccents drops: M of Unicode 9
/// Appends the character's lower case, as Rust's to_lowercase: of each character alone.
void append_lower(char32_t code_point, std::string& text);

}  // namespace dsj::data
