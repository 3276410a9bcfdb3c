#include "cli/import/arithmetic.h"

#include <cctype>

#include "common/text.h"

namespace dsj::jobimport {
namespace {

using Value = std::optional<int64_t>;

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const std::function<Value(const std::string&)>& value_of)
      : text_(text), value_of_(value_of) {}

  Value run() {
    const Value value = sum();
    return peek() == '\0' ? value : std::nullopt;
  }

 private:
  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Value sum() {
    Value left = product();
    for (char c = peek(); left && (c == '+' || c == '-'); c = peek()) {
      ++at_;
      const Value right = product();
      int64_t result = 0;
      if (!right || (c == '+' ? __builtin_add_overflow(*left, *right, &result)
                              : __builtin_sub_overflow(*left, *right, &result)))
        return std::nullopt;
      left = result;
    }
    return left;
  }

  Value product() {
    Value left = factor();
    for (char c = peek(); left && (c == '*' || c == '/' || c == '%'); c = peek()) {
      ++at_;
      const Value right = factor();
      if (!right) return std::nullopt;
      int64_t result = 0;
      if (c == '*') {
        if (__builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      } else if (*right == 0 || (*right == -1 && *left == INT64_MIN)) {
        return std::nullopt;
      } else {
        result = c == '/' ? *left / *right : *left % *right;
      }
      left = result;
    }
    return left;
  }

  Value factor() {
    if (++depth_ > 64) return std::nullopt;
    const Value value = primary();
    --depth_;
    return value;
  }

  Value primary() {
    const char c = peek();
    if (c == '(') {
      ++at_;
      const Value inner = sum();
      if (peek() != ')') return std::nullopt;
      ++at_;
      return inner;
    }
    if (c == '-') {
      ++at_;
      const Value value = factor();
      return value && *value != INT64_MIN ? Value(-*value) : std::nullopt;
    }
    const bool dollar = c == '$';
    if (dollar) ++at_;
    const bool braces = dollar && at_ < text_.size() && text_[at_] == '{';
    if (braces) ++at_;
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_'))
      ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (braces && (at_ >= text_.size() || text_[at_++] != '}')) return std::nullopt;
    if (word.empty()) return std::nullopt;
    if (!dollar && std::isdigit(static_cast<unsigned char>(word[0])))
      return word.size() > 1 && word[0] == '0' ? std::nullopt : text::parse_int(word);
    return value_of_(word);
  }

  const std::string_view text_;
  const std::function<Value(const std::string&)>& value_of_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::optional<int64_t> whole_arithmetic(
    std::string_view text,
    const std::function<std::optional<int64_t>(const std::string&)>& value_of) {
  return Arithmetic(text, value_of).run();
}

}  // namespace dsj::jobimport
