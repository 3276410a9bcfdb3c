#include "job/dsconfig/read/reader.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/text.h"

namespace dsj::dsconfig {
namespace {

using nlohmann::json;

constexpr size_t kMaxPath = 2048;            // longer paths get no position
constexpr size_t kMaxIndexedElements = 256;  // elements with a position, per array

/// Thrown and caught in this file only: the position of a syntax error.
struct SyntaxError {
  Position position;
  std::string message, hint;
};

bool is_punctuator(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':';
}

/// Whether all of `text` is a number in JSON's grammar.
bool looks_like_number(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - begin;
  };
  if (i < text.size() && text[i] == '-') ++i;
  const size_t first = i;
  const size_t whole = digits();
  if (whole == 0 || (whole > 1 && text[first] == '0')) return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && static_cast<unsigned char>(text.front()) <= ' ') text.remove_prefix(1);
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.remove_suffix(1);
  return text;
}

class Parser {
 public:
  Parser(std::string_view text, Positions& positions) : text_(text), positions_(positions) {}

  json document() {
    skip_space();
    json value;
    if (!at_end() && (peek() == '{' || peek() == '[')) {
      value = any("", 0);
    } else {  // Hjson: the outer braces may be left out
      value = members("", 0, false);
    }
    skip_space();
    if (!at_end()) fail("text after the end of the document", "remove it, or check the braces");
    return value;
  }

 private:
  // ---- characters

  bool at_end() const { return at_ >= text_.size(); }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool starts(std::string_view word) const { return text_.substr(at_, word.size()) == word; }

  void advance() {
    if (text_[at_] == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    }
    ++at_;
  }

  Position here() const { return {line_, static_cast<int>(at_ - line_begin_) + 1}; }

  [[noreturn]] void fail(std::string message, std::string hint = {}) const {
    throw SyntaxError{here(), std::move(message), std::move(hint)};
  }

  /// Skips blanks and comments.
  void skip_space() {
    while (!at_end()) {
      if (static_cast<unsigned char>(peek()) <= ' ') {
        advance();
      } else if (peek() == '#' || starts("//")) {
        while (!at_end() && peek() != '\n') advance();
      } else if (starts("/*")) {
        const Position begin = here();
        advance();
        advance();
        while (!at_end() && !starts("*/")) advance();
        if (at_end()) throw SyntaxError{begin, "the comment /* has no end", "add */"};
        advance();
        advance();
      } else {
        return;
      }
    }
  }

  // ---- values

  json any(const std::string& path, int depth) {
    if (depth > kMaxDepth)
      fail("nested deeper than " + std::to_string(kMaxDepth) + " levels", "no ds_config is");
    if (at_end()) fail("a value is missing at the end of the text", "add it, and close the braces");
    switch (peek()) {
      case '{': {
        advance();
        json object = members(path, depth, true);
        return object;
      }
      case '[':
        advance();
        return elements(path, depth);
      case '"':
      case '\'':
        if (starts("'''")) return multi_line();
        return quoted();
      default:
        return bare();
    }
  }

  json members(const std::string& path, int depth, bool braces) {
    json object = json::object();
    for (;;) {
      skip_space();
      if (at_end()) {
        if (braces) unclosed("the object has no closing brace", "add }");
        return object;
      }
      if (braces && peek() == '}') {
        advance();
        return object;
      }
      const Position key_at = here();
      const std::string key = key_name();
      const std::string child = joined(path, key);
      skip_space();
      if (at_end() || peek() != ':')
        fail("expected ':' after the key \"" + shown(key) + "\"" + swallowed(), "add it");
      advance();
      skip_space();
      if (object.contains(key)) {
        std::string first;
        if (const auto entry = positions_.find(child); entry != positions_.end())
          first = ", first at line " + std::to_string(entry->second.key.line) + ", column " +
                  std::to_string(entry->second.key.column);
        throw SyntaxError{key_at, "the key \"" + shown(key) + "\" is given twice" + first,
                          "keep one of the two"};
      }
      const Position value_at = here();
      const char first = peek();
      if (child.size() <= kMaxPath) positions_[child] = {key_at, value_at};
      json value = any(child, depth + 1);
      if (value_at.line > key_at.line && value.is_string() && first != '"' && first != '\'')
        throw SyntaxError{value_at,
                          "the value of \"" + shown(key) + "\" begins below its key, as in YAML",
                          "a ds_config is JSON or Hjson: put { } around its parts"};
      object[key] = std::move(value);
      skip_space();
      if (!at_end() && peek() == ',') advance();
    }
  }

  json elements(const std::string& path, int depth) {
    json array = json::array();
    for (;;) {
      skip_space();
      if (at_end()) unclosed("the list has no closing bracket", "add ]");
      if (peek() == ']') {
        advance();
        return array;
      }
      const std::string child = path + "[" + std::to_string(array.size()) + "]";
      if (array.size() < kMaxIndexedElements && child.size() <= kMaxPath)
        positions_[child] = {here(), here()};
      array.push_back(any(child, depth + 1));
      skip_space();
      if (!at_end() && peek() == ',') advance();
    }
  }

  std::string key_name() {
    if (peek() == '"' || peek() == '\'') return quoted();
    std::string name;
    while (!at_end() && !is_punctuator(peek()) && static_cast<unsigned char>(peek()) > ' ') {
      name += peek();
      advance();
    }
    if (name.empty())
      fail(std::string("expected a key, found '") +
               (at_end() ? "the end" : std::string(1, peek())) + "'" + swallowed(),
           "keys are names or \"quoted\"");
    return name;
  }

  static std::string joined(const std::string& path, const std::string& key) {
    return path.empty() ? key : path + "." + key;
  }

  static std::string shown(const std::string& key) {
    return key.size() > 60 ? key.substr(0, 57) + "..." : key;
  }

  /// Python's json.dump writes these for non-finite numbers, as in accelerate's `steps_per_print`.
  /// JSON has no such numbers: the key's check gets the word.
  static bool is_python_literal(std::string_view word) {
    return word == "Infinity" || word == "-Infinity" || word == "NaN";
  }

  /// An unquoted string extends to the end of its line: the usual cause of a missing brace.
  std::string swallowed() const {
    if (bare_line_ == 0) return "";
    return " (the unquoted value in line " + std::to_string(bare_line_) +
           " runs to the end of that line: quote it)";
  }

  /// Names the unquoted value if its text has what closes something.
  [[noreturn]] void unclosed(const char* message, const char* hint) const {
    if (bare_.find_first_of("}]") == std::string::npos) fail(message, hint);
    const std::string word = bare_.substr(0, bare_.find_first_of(",}] \t"));
    const std::string json = word == "True" ? "true" : word == "False" ? "false" : "null";
    const bool python = word == "True" || word == "False" || word == "None";
    throw SyntaxError{bare_at_,
                      "the unquoted value " + shown(word) + " runs to the end of its line",
                      python ? "write " + json : "quote it"};
  }

  json bare() {
    if (is_punctuator(peek()))
      fail(std::string("expected a value, found '") + peek() + "'", "add the value");
    const size_t begin = at_;
    const Position begins = here();
    for (;;) {
      const bool line_end = at_end() || peek() == '\n' || peek() == '\r';
      if (line_end || peek() == ',' || peek() == '}' || peek() == ']' || peek() == '#' ||
          starts("//") || starts("/*")) {
        const std::string_view word = trimmed(text_.substr(begin, at_ - begin));
        if (word == "true") return true;
        if (word == "false") return false;
        if (word == "null") return nullptr;
        if (is_python_literal(word)) return std::string(word);
        if (looks_like_number(word)) return number(word);
        if (line_end) {
          bare_line_ = line_;
          bare_ = word;
          bare_at_ = begins;
          return bare_;
        }
      }
      advance();
    }
  }

  json number(std::string_view word) const {
    const char* end = word.data() + word.size();
    int64_t whole = 0;
    if (auto [at, error] = std::from_chars(word.data(), end, whole);
        error == std::errc() && at == end)
      return whole;
    uint64_t large = 0;
    if (auto [at, error] = std::from_chars(word.data(), end, large);
        error == std::errc() && at == end)
      return large;
    double value = 0;
    const auto [at, error] = std::from_chars(word.data(), end, value);
    if (error != std::errc() || at != end)
      fail("the number " + shown(std::string(word)) + " is out of range");
    return value;
  }

  // ---- strings

  std::string quoted() {
    const Position begin = here();
    const char quote = peek();
    advance();
    std::string value;
    for (;;) {
      if (at_end() || peek() == '\n' || peek() == '\r')
        throw SyntaxError{begin, "the string has no closing quote in its line", "add it"};
      const char c = peek();
      if (c == quote) {
        advance();
        return value;
      }
      advance();
      if (c == '\\')
        escape(value);
      else
        value += c;
    }
  }

  void escape(std::string& value) {
    static constexpr std::string_view kNames = "\"'\\/bfnrt";
    static constexpr std::string_view kValues = "\"'\\/\b\f\n\r\t";
    if (at_end()) fail("the string ends in a backslash");
    const char c = peek();
    if (const size_t which = kNames.find(c); which != std::string_view::npos) {
      value += kValues[which];
      advance();
      return;
    }
    if (c != 'u') fail(std::string("unknown escape \\") + c, "write \\\\ for a backslash");
    advance();
    uint32_t code = hex4();
    if (code >= 0xD800 && code < 0xDC00 && starts("\\u")) {
      advance();
      advance();
      const uint32_t low = hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("half a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code <= 0xDFFF) fail("half a surrogate pair");
    append_utf8(value, code);
  }

  uint32_t hex4() {
    uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      uint32_t digit = 0;
      if (c >= '0' && c <= '9')
        digit = c - '0';
      else if (c >= 'a' && c <= 'f')
        digit = c - 'a' + 10;
      else if (c >= 'A' && c <= 'F')
        digit = c - 'A' + 10;
      else
        fail("expected four hexadecimal digits after \\u");
      code = code * 16 + digit;
      advance();
    }
    return code;
  }

  static void append_utf8(std::string& value, uint32_t code) {
    if (code < 0x80) {
      value += static_cast<char>(code);
    } else if (code < 0x800) {
      value += static_cast<char>(0xC0 | (code >> 6));
      value += static_cast<char>(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      value += static_cast<char>(0xE0 | (code >> 12));
      value += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      value += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      value += static_cast<char>(0xF0 | (code >> 18));
      value += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
      value += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
      value += static_cast<char>(0x80 | (code & 0x3F));
    }
  }

  /// '''text''': each line loses the indentation of the opening quotes.
  std::string multi_line() {
    const Position begin = here();
    const int indent = begin.column - 1;
    for (int i = 0; i < 3; ++i) advance();
    const auto skip_indent = [&] {
      for (int i = 0;
           i < indent && !at_end() && peek() != '\n' && static_cast<unsigned char>(peek()) <= ' ';
           ++i)
        advance();
    };
    while (!at_end() && static_cast<unsigned char>(peek()) <= ' ' && peek() != '\n') advance();
    if (!at_end() && peek() == '\n') {
      advance();
      skip_indent();
    }
    std::string value;
    while (!starts("'''")) {
      if (at_end()) throw SyntaxError{begin, "the string ''' has no end", "add '''"};
      const char c = peek();
      advance();
      if (c != '\r') value += c;
      if (c == '\n') skip_indent();
    }
    for (int i = 0; i < 3; ++i) advance();
    if (!value.empty() && value.back() == '\n') value.pop_back();
    return value;
  }

  std::string_view text_;
  Positions& positions_;
  size_t at_ = 0, line_begin_ = 0;
  int line_ = 1;
  int bare_line_ = 0;  ///< line of the last unquoted string
  std::string bare_;   ///< that string
  Position bare_at_ = {};
};

constexpr char kOfAccelerate[] = "this is a file of `accelerate config`, expected a ds_config";
constexpr char kImportIt[] =
    "`dsj import accelerate -- accelerate launch --config_file FILE SCRIPT ...` makes a job of it";

std::string where(const std::string& source, Position position) {
  return source + ":" + std::to_string(position.line) + ":" + std::to_string(position.column);
}

}  // namespace

Status refuse_accelerates(const json& document, const std::string& source) {
  const auto has = [&](const char* key) { return document.is_object() && document.contains(key); };
  if (has("compute_environment") || (has("distributed_type") && has("deepspeed_config")))
    return bad_input(kOfAccelerate, source, kImportIt);
  return {};
}

Result<Document> parse_text(std::string_view text, const std::string& source) {
  if (text.size() > kMaxText)
    return bad_input("the file has " + std::to_string(text.size()) + " bytes, expected at most " +
                         std::to_string(kMaxText),
                     source, "is it a ds_config?");
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  // UTF-16's zero bytes would be white space here, and each key a stranger.
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") || text.contains('\0'))
    return bad_input("found UTF-16 or a zero byte, expected UTF-8", source,
                     "save the file as UTF-8; PowerShell: Set-Content -Encoding utf8");
  if (const size_t bad = dsj::text::invalid_utf8(text); bad != std::string_view::npos) {
    Position position{1, 1};
    for (size_t i = 0; i < bad; ++i) {
      position.column = text[i] == '\n' ? 1 : position.column + 1;
      position.line += text[i] == '\n';
    }
    return bad_input("a byte that is not UTF-8", where(source, position), "save the file as UTF-8");
  }
  Document document{.source = source};
  try {
    document.value = Parser(text, document.positions).document();
  } catch (const SyntaxError& error) {
    // `accelerate config` writes YAML.
    if (text.contains("compute_environment")) return bad_input(kOfAccelerate, source, kImportIt);
    return bad_input(error.message, where(source, error.position), error.hint);
  }
  DSJ_TRY_STATUS(refuse_accelerates(document.value, source));
  return document;
}

Result<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return bad_input(std::string("cannot be read: ") + std::strerror(errno), path);
  std::string text(kMaxText + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.fail() && !file.eof()))
    return bad_input("cannot be read: is it a file?", path);
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kMaxText) {
    std::error_code unknown;  // a pipe has no size
    const auto bytes = std::filesystem::file_size(path, unknown);
    if (!unknown && bytes > kMaxText)
      return bad_input("the file has " + std::to_string(bytes) + " bytes, expected at most " +
                           std::to_string(kMaxText),
                       path, "a cluster cannot store larger files");
  }
  return text;
}

Result<Document> read_file(const std::string& path) {
  DSJ_TRY(const std::string text, text_of_file(path));
  return parse_text(text, path);
}

void locate(std::vector<Finding>& findings, const Positions& positions) {
  for (Finding& finding : findings) {
    for (std::string path = finding.path; !path.empty();) {
      if (const auto entry = positions.find(path); entry != positions.end()) {
        finding.line = entry->second.key.line;
        finding.column = entry->second.key.column;
        break;
      }
      const size_t cut = path.find_last_of(".[");
      path.resize(cut == std::string::npos ? 0 : cut);
    }
  }
}

}  // namespace dsj::dsconfig
