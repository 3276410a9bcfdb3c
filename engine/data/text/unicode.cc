#include "engine/data/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <span>

#include "common/check.h"
#include "engine/data/text/unicode_tables.h"

namespace dsj::data {
namespace {

struct Sequence {
  std::size_t length = 1;   // of the sequence, or of its well-formed start
  bool well_formed = true;  // false: the `length` bytes are one ill-formed sequence
};

// Table 3-7 of the Unicode standard: the allowed second byte depends on the first.
Sequence sequence_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(at);
  if (first < 0x80) return {1, true};
  std::size_t length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i >= text.size() || byte(at + i) < low || byte(at + i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

/// Returns the row of a sorted table that covers the code point, or null.
template <typename Row>
const Row* row_of(std::span<const Row> rows, char32_t c) {
  const auto after = std::ranges::upper_bound(rows, c, {}, &Row::first);
  if (after == rows.begin() || c > std::prev(after)->last) return nullptr;
  return &*std::prev(after);
}

const StandIn* stand_in_of(char32_t c) {
  // Most text is below the first newer character, or in blocks of old ideographs and syllables.
  if (c < 0x897 || (c >= 0x3200 && c < 0xA7CB) || (c >= 0xAC00 && c < 0x10000)) return nullptr;
  return row_of(stand_ins(), c);
}

void append_normal(std::string_view text, NormalForm form, std::string& result) {
  if (text.empty()) return;
  int options = UTF8PROC_STABLE;
  options |=
      form == NormalForm::Nfc || form == NormalForm::Nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::Nfkc || form == NormalForm::Nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                   static_cast<utf8proc_option_t>(options));
  DSJ_CHECK(length >= 0, "utf8proc: %s", utf8proc_errmsg(length));
  result.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(length));
  std::free(mapped);
}

}  // namespace

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Sequence sequence = sequence_at(text, at);
    if (!sequence.well_formed) return at;
    at += sequence.length;
  }
  return std::nullopt;
}

std::string to_valid_utf8(std::string_view bytes) {
  if (!find_invalid_utf8(bytes)) return std::string(bytes);
  std::string text;
  text.reserve(bytes.size() + 8);
  for (std::size_t at = 0; at < bytes.size();) {
    const Sequence sequence = sequence_at(bytes, at);
    if (sequence.well_formed) {
      text.append(bytes.substr(at, sequence.length));
    } else {
      text.append("\xEF\xBF\xBD");
    }
    at += sequence.length;
  }
  return text;
}

CodePoint code_point_at(std::string_view text, std::size_t offset) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(uint8_t(text[offset + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) {
    return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  }
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F),
          4};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return code_point_at(text, start);
}

void append_utf8(char32_t code_point, std::string& text) {
  utf8proc_uint8_t buffer[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  text.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(length));
}

std::string to_normal_form(std::string_view text, NormalForm form, NormalTables tables) {
  std::string result;
  result.reserve(text.size());
  if (is_trivially_normal(text, form)) return result.append(text);
  std::size_t done = 0;
  // For Unicode 9 a newer mark is an unassigned starter that composes with nothing: normalize
  // the text before it and the text after it separately.
  for (std::size_t at = 0; tables == NormalTables::Unicode9 && at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.length;
    if (row_of(newer_marks(), c.value) == nullptr) continue;
    append_normal(text.substr(done, at - c.length - done), form, result);
    result.append(text.substr(at - c.length, c.length));
    done = at;
  }
  append_normal(text.substr(done), form, result);
  return result;
}

bool is_trivially_normal(std::string_view text, NormalForm form) {
  // The lead byte of the first character that a form may change: U+0300 (a combining mark),
  // U+00C0 (has a canonical decomposition), U+00A0 (has a compatibility decomposition).
  const uint8_t first = form == NormalForm::Nfc ? 0xCC : form == NormalForm::Nfd ? 0xC3 : 0xC2;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= first) return false;
  }
  return true;
}

std::string as_unicode14(std::string_view text) {
  std::string other;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0xE0) {
      ++at;
      continue;
    }
    const CodePoint c = code_point_at(text, at);
    if (const StandIn* row = stand_in_of(c.value)) {
      if (other.empty()) other = text;
      std::string known;
      append_utf8(row->other, known);
      other.replace(at, c.length, known);
    }
    at += c.length;
  }
  return other;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  if (const StandIn* row = stand_in_of(c)) c = row->other;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      break;
  }
  // The rest of Alphabetic: circled and squared letters (So). Then Join_Control.
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C ||
         c == 0x200D;
}

bool is_numeric(char32_t c) {
  return c < 0x80 ? c >= '0' && c <= '9' : row_of(numeric(), c) != nullptr;
}

bool is_punctuation(char32_t c) {
  return row_of(punctuation(), c) != nullptr;
}

bool is_accent(char32_t c) {
  return c >= 0x300 && row_of(marks_of_unicode9(), c) != nullptr;
}

void append_lower(char32_t c, std::string& text) {
  if (c == 0x130) {  // the only character whose lower case has two characters
    text.append("i\u0307");
    return;
  }
  if (const Lower* row = row_of(newer_lower(), c)) {
    c = static_cast<char32_t>(static_cast<int32_t>(c) + row->distance);
  } else {
    c = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
  }
  append_utf8(c, text);
}

}  // namespace dsj::data
