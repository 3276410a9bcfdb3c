#include "common/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "common/jinja/python_text.h"

namespace dsj::jinja {
namespace {

using Kind = Token::Kind;

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", "<=", ">=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

/// Converts line ends to \n and removes the last one.
std::string normalized_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80);
}
bool is_decimal(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) root();
    tokens_.push_back({Kind::End, "", line_});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const {
    throw SyntaxError{std::move(message), line_};
  }
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool at_end() const { return at_ >= source_.size(); }
  void advance(size_t bytes) {
    line_ += static_cast<int>(std::ranges::count(rest().substr(0, bytes), '\n'));
    at_ += bytes;
    if (bytes > 0) line_starting_ = source_[at_ - 1] == '\n';
  }
  void skip_space() {
    while (!at_end()) {
      size_t next = at_;
      if (!is_space(next_code_point(source_, next))) return;
      advance(next - at_);
    }
  }

  /// Reads text up to the next tag, and the start of the tag.
  void root() {
    size_t tag = at_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        return data(source_.size(), 0, false), void(at_ = source_.size());
      }
      const char kind = source_[tag + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
      ++tag;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const bool has_sign = sign == '-' || sign == '+';
    data(tag, has_sign ? sign : 0, kind != '{');
    const int begin_line = line_;
    advance(has_sign ? 3 : 2);
    if (kind == '#') return comment(begin_line);
    if (kind == '%' && raw()) return;
    tokens_.push_back({kind == '%' ? Kind::BlockBegin : Kind::VariableBegin, "", begin_line});
    code(kind == '%');
  }

  /// Emits the text up to `end`, before a tag with this sign. `strips`: removes white space before
  /// a tag that is alone in its line.
  void data(size_t end, char sign, bool strips) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    const int begin_line = line_;
    if (sign == '-') {
      text = stripped(text, {.left = false});
    } else if (sign != '+' && strips) {
      const size_t line_end = text.rfind('\n');
      const size_t begin = line_end == std::string_view::npos ? 0 : line_end + 1;
      if ((begin > 0 || line_starting_) && stripped(text.substr(begin), {}).empty())
        text = text.substr(0, begin);
    }
    if (!text.empty()) tokens_.push_back({Kind::Data, std::string(text), begin_line});
    advance(end - at_);
  }

  /// Reads the end of a tag and the white space that it removes. False if there is no end here.
  bool end_of(std::string_view end, bool trims) {
    if (rest().starts_with(std::string("-") + std::string(end))) {
      advance(1 + end.size());
      skip_space();
      return true;
    }
    if (trims && rest().starts_with(std::string("+") + std::string(end))) {
      advance(1 + end.size());
      return true;
    }
    if (!rest().starts_with(end)) return false;
    advance(end.size());
    if (trims && rest().starts_with('\n')) advance(1);
    return true;
  }

  void comment(int begin_line) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) throw SyntaxError{"the comment has no end #}", begin_line};
    const bool sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
    advance(end - at_ - (sign ? 1 : 0));
    end_of("#}", true);
  }

  /// Reads {% raw %} up to {% endraw %}. False if this is another tag.
  bool raw() {
    size_t at = at_;
    const auto skip = [&] {
      while (at < source_.size()) {
        size_t next = at;
        if (!is_space(next_code_point(source_, next))) return;
        at = next;
      }
    };
    skip();
    if (!std::string_view(source_).substr(at).starts_with("raw")) return false;
    at += 3;
    skip();
    const std::string_view end = std::string_view(source_).substr(at);
    if (!end.starts_with("%}") && !end.starts_with("-%}")) return false;
    const int begin_line = line_;
    advance(at - at_);
    end_of("%}", false);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      at = tag + 2;
      const char sign = at < source_.size() ? source_[at] : '\0';
      const bool has_sign = sign == '-' || sign == '+';
      if (has_sign) ++at;
      skip();
      if (!std::string_view(source_).substr(at).starts_with("endraw")) continue;
      at += 6;
      skip();
      const std::string_view close = std::string_view(source_).substr(at);
      if (!close.starts_with("%}") && !close.starts_with("-%}") && !close.starts_with("+%}"))
        continue;
      data(tag, has_sign ? sign : 0, true);
      advance(at - at_);
      end_of("%}", true);
      return true;
    }
    throw SyntaxError{"{% raw %} has no {% endraw %}", begin_line};
  }

  /// Reads the content and the end of a tag.
  void code(bool block) {
    const int begin_line = line_;
    while (true) {
      skip_space();
      if (at_end()) {
        throw SyntaxError{block ? "the tag {% has no end %}" : "the tag {{ has no end }}",
                          begin_line};
      }
      if (open_.empty()) {
        const int line = line_;
        if (block ? end_of("%}", true) : end_of("}}", false)) {
          tokens_.push_back({block ? Kind::BlockEnd : Kind::VariableEnd, "", line});
          return;
        }
      }
      const char c = source_[at_];
      if (is_decimal(c)) {
        number();
      } else if (is_name_start(c)) {
        name();
      } else if (c == '\'' || c == '"') {
        string(c);
      } else {
        operation();
      }
    }
  }

  void take(Kind kind, size_t bytes) {
    tokens_.push_back({kind, std::string(rest().substr(0, bytes)), line_});
    advance(bytes);
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_decimal(source_[end]))) ++end;
    take(Kind::Name, end - at_);
  }

  /// Reads digits with single underscores between them; returns the position after them.
  size_t digits(size_t at) const {
    while (at < source_.size() && (is_decimal(source_[at]) ||
                                   (source_[at] == '_' && at + 1 < source_.size() &&
                                    is_decimal(source_[at + 1]) && is_decimal(source_[at - 1]))))
      ++at;
    return at;
  }

  void number() {
    const auto at = [this](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    const char second = at(at_ + 1);
    size_t end = digits(at_);
    const bool based = source_[at_] == '0' && std::string_view("xXoObB").contains(second) && second;
    if (based) {
      end = at_ + 2;
      while (is_decimal(at(end)) || (at(end) >= 'a' && at(end) <= 'f') ||
             (at(end) >= 'A' && at(end) <= 'F') || at(end) == '_')
        ++end;
      return take_plain(Kind::Integer, end);
    }
    bool fraction = false;
    const bool after_dot =
        !tokens_.empty() && tokens_.back().kind == Kind::Operator && tokens_.back().text == ".";
    if (!after_dot) {
      if (at(end) == '.' && is_decimal(at(end + 1))) {
        end = digits(end + 1);
        fraction = true;
      }
      if (at(end) == 'e' || at(end) == 'E') {
        const size_t power = end + (at(end + 1) == '+' || at(end + 1) == '-' ? 2 : 1);
        if (is_decimal(at(power))) {
          end = digits(power);
          fraction = true;
        }
      }
    }
    take_plain(fraction ? Kind::Float : Kind::Integer, end);
  }

  void take_plain(Kind kind, size_t end) {
    take(kind, end - at_);
    std::erase(tokens_.back().text, '_');
  }

  void string(char quote) {
    const int line = line_;
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) throw SyntaxError{"a text has no closing quote", line};
    tokens_.push_back({Kind::String, unescaped(rest().substr(1, end - at_ - 1)), line});
    advance(end + 1 - at_);
  }

  /// Decodes Python's escapes; an unknown one is unchanged.
  std::string unescaped(std::string_view text) const {
    constexpr std::string_view kPlain = "abfnrtv\\'\"", kMeant = "\a\b\f\n\r\t\v\\'\"";
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 >= text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      if (const size_t plain = kPlain.find(c); plain != std::string_view::npos) {
        out += kMeant[plain];
      } else if (c == '\n') {
      } else if (c >= '0' && c <= '7') {
        char32_t value = 0;
        size_t end = i;
        while (end < text.size() && end < i + 3 && text[end] >= '0' && text[end] <= '7')
          value = value * 8 + static_cast<char32_t>(text[end++] - '0');
        append_code_point(value, out);
        i = end - 1;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        i += append_hexadecimal(text.substr(i + 1), c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
      } else if (c == 'N') {
        fail("\\N{...} is not built: write the character itself");
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  size_t append_hexadecimal(std::string_view text, size_t width, std::string& out) const {
    char32_t value = 0;
    for (size_t i = 0; i < width; ++i) {
      const size_t digit = i < text.size()
                               ? std::string_view("0123456789abcdef")
                                     .find(text[i] | (text[i] >= 'A' && text[i] <= 'F' ? 0x20 : 0))
                               : std::string_view::npos;
      if (digit == std::string_view::npos) {
        fail("an escape \\x, \\u or \\U in a text needs " + std::to_string(width) +
             " hexadecimal digits");
      }
      value = value * 16 + static_cast<char32_t>(digit);
    }
    if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000)) {
      fail("an escape in a text is not a character");
    }
    append_code_point(value, out);
    return width;
  }

  void operation() {
    const auto found = std::ranges::find_if(
        kOperators, [this](std::string_view one) { return rest().starts_with(one); });
    if (found == kOperators.end()) {
      fail("unexpected character '" + std::string(rest().substr(0, character_bytes(source_[at_]))) +
           "'");
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) fail(std::string("unexpected '") + c + "'");
      if (open_.back() != c)
        fail(std::string("unexpected '") + c + "', expected '" + open_.back() + "'");
      open_.pop_back();
    }
    take(Kind::Operator, found->size());
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string open_;  ///< unclosed brackets
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(normalized_lines(source)).run();
}

}  // namespace dsj::jinja
