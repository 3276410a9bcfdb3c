#include "engine/data/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "common/check.h"

namespace dsj::data {
namespace {

constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";

std::unexpected<Error> refuse(std::string_view pattern, std::size_t at, const std::string& what) {
  return bad_input("pattern '" + std::string(pattern) + "', offset " + std::to_string(at) + ": " +
                   what + " is not supported");
}

bool is_hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        DSJ_TRY_STATUS(escape());
      } else if (in_class_) {
        DSJ_TRY_STATUS(class_character(c));
      } else {
        DSJ_TRY_STATUS(plain_character(c));
      }
    }
    return std::move(out_);
  }

 private:
  Status escape() {
    if (at_ + 1 >= pattern_.size()) return refuse(pattern_, at_, "a trailing backslash");
    const char c = pattern_[at_ + 1];
    const auto rest = pattern_.substr(at_ + 2);
    if (c == 's') return take(2, in_class_ ? std::string(kWhiteSpace) : bracket("[", kWhiteSpace));
    if (c == 'S' && !in_class_) return take(2, bracket("[^", kWhiteSpace));
    if (c == 'u' && is_hex(rest.substr(0, 4)) && rest.size() >= 4) {
      return take(6, "\\x{" + std::string(rest.substr(0, 4)) + "}");
    }
    if ((c == 'p' || c == 'P' || c == 'x') && rest.starts_with('{')) {
      const auto close = rest.find('}');
      if (close == rest.npos) return refuse(pattern_, at_, "an unclosed brace");
      return take(close + 3, pattern_.substr(at_, close + 3));
    }
    const bool letter_or_digit = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    if (c == 'r' || c == 'n' || c == 't' || c == 'd' || c == 'D' || c == 'f' || !letter_or_digit) {
      return take(2, pattern_.substr(at_, 2));
    }
    return refuse(pattern_, at_, std::string("\\") + c + (in_class_ ? " in a class" : ""));
  }

  Status class_character(char c) {
    if (c == '[') return refuse(pattern_, at_, "a class in a class");
    if (c == '&' && pattern_.substr(at_).starts_with("&&")) {
      return refuse(pattern_, at_, "&& in a class");
    }
    if (c == ']' && at_ == class_start_) return refuse(pattern_, at_, "an empty class");
    if (c == ']') in_class_ = false;
    return take(1, pattern_.substr(at_, 1));
  }

  Status plain_character(char c) {
    if (c == '^' || c == '$') return refuse(pattern_, at_, std::string("the anchor ") + c);
    if (pattern_.substr(at_).starts_with("{,")) return refuse(pattern_, at_, "{,n}");
    if (pattern_.substr(at_).starts_with("(?")) {
      static constexpr std::string_view kKnown[] = {"(?:", "(?i:", "(?!", "(?="};
      bool known = false;
      for (const auto group : kKnown) known |= pattern_.substr(at_).starts_with(group);
      if (!known) return refuse(pattern_, at_, "this kind of group");
    }
    if (c == '[') {
      in_class_ = true;
      const bool negated = pattern_.substr(at_).starts_with("[^");
      class_start_ = at_ + (negated ? 2 : 1);
      return take(negated ? 2 : 1, negated ? "[^" : "[");
    }
    return take(1, pattern_.substr(at_, 1));
  }

  Status take(std::size_t length, std::string_view text) {
    out_.append(text);
    at_ += length;
    return {};
  }
  static std::string bracket(std::string_view open, std::string_view content) {
    return std::string(open) + std::string(content) + "]";
  }

  std::string_view pattern_;
  std::string out_;
  std::size_t at_ = 0, class_start_ = 0;
  bool in_class_ = false;
};

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct SplitPattern::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

SplitPattern::SplitPattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

Result<std::string> translate_pattern(std::string_view pattern) {
  return Translator(pattern).run();
}

Result<SplitPattern> SplitPattern::compile(std::string_view pattern, bool literal) {
  std::string text(pattern);
  if (!literal) {
    DSJ_TRY(text, translate_pattern(pattern));
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's dot stops only at \n.
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), options,
                             &error, &offset, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    return bad_input("pattern '" + std::string(pattern) +
                     "' does not compile: " + message_of(error));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(code->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0 || text.empty()) {
    return bad_input("pattern '" + std::string(pattern) +
                     "' can match the empty string, which is "
                     "not supported");
  }
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter does the same
  return SplitPattern(std::move(code));
}

Status SplitPattern::match(std::string_view text, std::vector<Span>& matches) const {
  matches.clear();
  // One block per thread. It has room only for the place of the whole match.
  struct Block {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    ~Block() { pcre2_match_data_free(data); }
  };
  static thread_local const Block block;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(block.data);
  for (std::size_t at = 0; at < text.size();) {
    int count =
        pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, block.data, nullptr);
    if (count == PCRE2_ERROR_NOMATCH) break;
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      count = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                          block.data, nullptr);
    }
    if (count < 0) {
      return bad_input("the pre-tokenizer's pattern gives up at byte " + std::to_string(at) +
                       " of a text of " + std::to_string(text.size()) +
                       " bytes: " + message_of(count));
    }
    DSJ_CHECK(place[1] > place[0], "an empty match");
    matches.push_back({place[0], place[1]});
    at = place[1];
  }
  return {};
}

}  // namespace dsj::data
