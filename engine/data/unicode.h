// UTF-8, NFC, and the two character classes that the tokenizer needs beside its patterns. Internal
// to engine/data. Only this file pair calls utf8proc.
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

/// Which characters canonical composition (NFC) knows.
enum class Nfc {
  None,      ///< text stays as it is
  Unicode9,  ///< Hugging Face tokenizers' tables: a mark assigned later has combining class 0
  Current,   ///< utf8proc's tables; Python's unicodedata on characters of Unicode 14
};
/// Canonical composition of well-formed text.
std::string to_nfc(std::string_view text, Nfc tables);
/// True: to_nfc would certainly change nothing, because no code point is U+0300 or above.
bool is_trivially_nfc(std::string_view text);

/// Unicode's White_Space.
bool is_white_space(char32_t code_point);
/// \w in Rust's regex: Alphabetic, M, Nd, Pc and Join_Control.
bool is_word(char32_t code_point);

}  // namespace dsj::data
