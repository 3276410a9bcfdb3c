#include "common/jinja/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

namespace dsj::jinja {
namespace {

/// Characters whose upper case has several characters (SpecialCasing, without its conditions), each
/// followed by its upper case.
constexpr std::string_view kLongUppers =
    "ßSS ŉʼN ǰJ̌ ΐΪ́ ΰΫ́ ևԵՒ ẖH̱ ẗT̈ ẘW̊ ẙY̊ ẚAʾ ὐΥ̓ ὒΥ̓̀ ὔΥ̓́ ὖΥ̓͂ ᾀἈΙ ᾁἉΙ ᾂἊΙ ᾃἋΙ ᾄἌΙ "
    "ᾅἍΙ ᾆἎΙ ᾇἏΙ ᾈἈΙ ᾉἉΙ ᾊἊΙ ᾋἋΙ ᾌἌΙ ᾍἍΙ ᾎἎΙ ᾏἏΙ ᾐἨΙ ᾑἩΙ ᾒἪΙ ᾓἫΙ ᾔἬΙ ᾕἭΙ ᾖἮΙ ᾗἯΙ ᾘἨΙ ᾙἩΙ ᾚἪΙ "
    "ᾛἫΙ ᾜἬΙ ᾝἭΙ ᾞἮΙ ᾟἯΙ ᾠὨΙ ᾡὩΙ ᾢὪΙ ᾣὫΙ ᾤὬΙ ᾥὭΙ ᾦὮΙ ᾧὯΙ ᾨὨΙ ᾩὩΙ ᾪὪΙ ᾫὫΙ ᾬὬΙ ᾭὭΙ ᾮὮΙ ᾯὯΙ ᾲᾺΙ "
    "ᾳΑΙ ᾴΆΙ ᾶΑ͂ ᾷΑ͂Ι ᾼΑΙ ῂῊΙ ῃΗΙ ῄΉΙ ῆΗ͂ ῇΗ͂Ι ῌΗΙ ῒΪ̀ ΐΪ́ ῖΙ͂ ῗΪ͂ ῢΫ̀ ΰΫ́ ῤΡ̓ ῦΥ͂ ῧΫ͂ "
    "ῲῺΙ ῳΩΙ ῴΏΙ ῶΩ͂ ῷΩ͂Ι ῼΩΙ ﬀFF ﬁFI ﬂFL ﬃFFI ﬄFFL ﬅST ﬆST ﬓՄՆ ﬔՄԵ ﬕՄԻ ﬖՎՆ ﬗՄԽ ";
const std::unordered_map<char32_t, std::string_view>& long_uppers() {
  static const auto table = [] {
    std::unordered_map<char32_t, std::string_view> made;
    for (size_t at = 0; at < kLongUppers.size();) {
      const size_t end = std::min(kLongUppers.find(' ', at), kLongUppers.size());
      const char32_t c = next_code_point(kLongUppers, at);
      made[c] = kLongUppers.substr(at, end - at);
      at = end + 1;
    }
    return made;
  }();
  return table;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

/// Whether it may stand inside a word without ending it, for the Greek final sigma.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::u32string_view(U"'.:^`\u00a8\u00b7\u2018\u2019\u2024\u2027").contains(c);
  }
}

void append_upper(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  } else if (const auto found = long_uppers().find(c); found != long_uppers().end()) {
    out += found->second;
  } else {
    append_code_point(static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))), out);
  }
}

/// Whether Σ at this position becomes ς because it ends a word.
bool is_final_sigma(std::string_view text, size_t before, size_t behind) {
  bool letter_before = false;
  for (size_t at = 0; at < before;) {
    const char32_t c = next_code_point(text, at);
    if (!is_case_ignorable(c)) letter_before = is_cased(c);
  }
  if (!letter_before) return false;
  while (behind < text.size()) {
    const char32_t c = next_code_point(text, behind);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

/// Appends the lower case of the character at `at`; moves `at` to the next one.
void append_lower(std::string_view text, size_t& at, std::string& out) {
  const size_t begin = at;
  const char32_t c = next_code_point(text, at);
  if (c < 0x80) {
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  } else if (c == 0x3a3) {
    out += is_final_sigma(text, begin, at) ? "ς" : "σ";
  } else if (c == 0x130) {
    out += "i\u0307";
  } else {
    append_code_point(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))), out);
  }
}

void append_title(char32_t c, std::string& out) {
  const auto title = static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c)));
  const auto found = long_uppers().find(c);
  if (title != c || found == long_uppers().end()) return append_code_point(title, out);
  size_t at = 0;
  append_code_point(next_code_point(found->second, at), out);
  while (at < found->second.size()) append_lower(found->second, at, out);
}

bool is_printable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

void append_hex(char32_t c, std::string& out) {
  const int width = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
  out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
  for (int i = width - 1; i >= 0; --i) out += "0123456789abcdef"[(c >> (4 * i)) & 15];
}

/// Begin and end of the first or the last run of white space in `text`; npos if there is none.
std::pair<size_t, size_t> white_run(std::string_view text, bool last) {
  std::pair<size_t, size_t> run(std::string_view::npos, text.size());
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const bool white = is_space(next_code_point(text, at));
    if (white && !inside) run.first = here;
    if (!white && inside) {
      run.second = here;
      if (!last) return run;
    }
    inside = white;
  }
  if (inside) run.second = text.size();
  return run;
}

/// Splits by white space; `max` < 0: no limit. The rest keeps white space at its far end.
std::vector<std::string_view> split_white(std::string_view text, int64_t max, bool from_right) {
  std::vector<std::string_view> parts;
  const Sides near{.left = !from_right, .right = from_right};
  for (text = stripped(text, near); !text.empty(); text = stripped(text, near), --max) {
    const auto [begin, end] = white_run(text, from_right);
    if (max == 0 || begin == std::string_view::npos) {
      parts.push_back(text);
      break;
    }
    parts.push_back(from_right ? text.substr(end) : text.substr(0, begin));
    text = from_right ? text.substr(0, begin) : text.substr(end);
  }
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

}  // namespace

size_t code_points(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
}

size_t character_bytes(char first) {
  const auto c = static_cast<unsigned char>(first);
  return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) -> char32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) & 0x3f : 0;
  };
  const auto first = static_cast<unsigned char>(text[at]);
  const size_t here = at, bytes = character_bytes(text[at]);
  at = std::min(at + bytes, text.size());
  if (bytes == 1) return first;
  if (bytes == 2) return (first & 0x1fu) << 6 | byte(here + 1);
  if (bytes == 3) return (first & 0xfu) << 12 | byte(here + 1) << 6 | byte(here + 2);
  return (first & 7u) << 18 | byte(here + 1) << 12 | byte(here + 2) << 6 | byte(here + 3);
}

void append_code_point(char32_t c, std::string& out) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
  }
  put(0x80 | (c & 0x3f));
}

size_t byte_of(std::string_view text, size_t index) {
  size_t at = 0;
  while (index-- > 0 && at < text.size()) at += character_bytes(text[at]);
  return std::min(at, text.size());
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  std::string_view made(buffer, static_cast<size_t>(end.ptr - buffer));
  std::string out;
  if (made.starts_with('-')) {
    out = "-";
    made.remove_prefix(1);
  }
  const size_t e = made.find('e');
  std::string digits(made.substr(0, 1));
  if (e > 2) digits += made.substr(2, e - 2);
  int exponent = 0;
  const bool down = made[e + 1] == '-';
  std::from_chars(made.data() + e + 2, made.data() + made.size(), exponent);
  if (down) exponent = -exponent;
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string text_repr(std::string_view text) {
  const char quote = text.contains('\'') && !text.contains('"') ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (c < 0x7f ? c >= ' ' : is_printable(c)) {
      append_code_point(c, out);
    } else {
      append_hex(c, out);
    }
  }
  return out + quote;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}
bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

std::string_view stripped(std::string_view text, Sides sides,
                          std::optional<std::string_view> characters) {
  const auto goes = [&](std::string_view one) {
    if (characters) return characters->contains(one);
    size_t at = 0;
    return is_space(next_code_point(one, at));
  };
  while (sides.left && !text.empty()) {
    const size_t bytes = character_bytes(text.front());
    if (!goes(text.substr(0, bytes))) break;
    text.remove_prefix(std::min(bytes, text.size()));
  }
  while (sides.right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
    if (!goes(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text,
                                    std::optional<std::string_view> separator, int64_t max,
                                    bool from_right) {
  if (!separator) return split_white(text, max, from_right);
  std::vector<std::string_view> parts;
  for (; max != 0; --max) {
    const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at),
                           behind = text.substr(at + separator->size());
    parts.push_back(from_right ? behind : before);
    text = from_right ? before : behind;
  }
  parts.push_back(text);
  if (from_right) std::ranges::reverse(parts);
  return parts;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = next_code_point(text, at);
    if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
          c == 0x2029))
      continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t max) {
  std::string out;
  size_t at = 0;
  if (from.empty()) {  // between all characters, and at both ends
    for (; max != 0; --max) {
      out += to;
      if (at >= text.size()) return out;
      const size_t bytes = character_bytes(text[at]);
      out += text.substr(at, bytes);
      at += bytes;
    }
    return out.append(text.substr(std::min(at, text.size())));
  }
  for (; max != 0; --max) {
    const size_t found = text.find(from, at);
    if (found == std::string_view::npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

int64_t occurrences(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<int64_t>(code_points(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_upper(next_code_point(text, at), out);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_lower(text, at, out);
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    size_t next = at;
    const char32_t c = next_code_point(text, next);
    if (inside) {
      append_lower(text, at, out);
    } else {
      append_title(c, out);
    }
    inside = is_cased(c);
    at = next;
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  size_t at = 0;
  if (!text.empty()) append_title(next_code_point(text, at), out);
  while (at < text.size()) append_lower(text, at, out);
  return out;
}

std::string to_swapped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t next = at;
    const char32_t c = next_code_point(text, next);
    if (is_upper(c)) {
      append_lower(text, at, out);
    } else if (is_lower(c)) {
      append_upper(c, out);
    } else {
      append_code_point(c, out);
    }
    at = next;
  }
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case '"':
        out += "&#34;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace dsj::jinja
