#include "engine/data/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "common/check.h"
#include "engine/data/text/unicode.h"

namespace dsj::data {
namespace {

// The contents of classes. \s is Unicode's White_Space (PCRE2's own includes U+180E);
// Oniguruma's \w is Alphabetic, M, Nd, Pc and the superscripts and fractions of Latin-1.
constexpr std::string_view kWhiteSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9})"
    R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHexDigit = "0-9a-fA-F";
// Ruby's lines: ^ also matches after a \n that is not the last character, $ also before any \n.
constexpr std::string_view kLineBegin = R"((?:\A|(?<=\n)(?!\z)))";
constexpr std::string_view kLineEnd = R"((?=\n|\z))";

constexpr std::size_t kDepthMax = 16;  // of nested classes

bool is_hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdefABCDEF") == text.npos;
}

std::string bracket(std::string_view open, std::string_view content) {
  return std::string(open).append(content).append("]");
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c != '*' && c != '+' && c != '?' && c != '{' && c != ')') atom_ = out_.size();
      if (c == '\\') {
        DSJ_TRY_STATUS(escape());
      } else if (c == '[') {
        DSJ_TRY(const Class one, character_class(0));
        out_ += one.whole();
      } else {
        DSJ_TRY_STATUS(plain_character(c));
      }
    }
    return std::move(out_);
  }

 private:
  /// A set of characters: `items`: the content of a class; `others`: patterns of one character.
  struct Class {
    std::string items{};
    std::vector<std::string> others{};
    bool negated = false;

    std::string whole() const {
      if (others.empty()) return bracket(negated ? "[^" : "[", items);
      std::string any = "(?:" + (items.empty() ? std::string() : bracket("[", items) + "|");
      for (const std::string& other : others) any.append(other).append("|");
      any.back() = ')';
      return negated ? "(?:(?!" + any + ")(?s:.))" : any;
    }
  };

  std::unexpected<Error> refuse(const std::string& what) const {
    return bad_input("pattern '" + std::string(pattern_) + "', offset " + std::to_string(at_) +
                     ": " + what + " is not supported");
  }
  bool ahead(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  Status take(std::size_t length, std::string_view text) {
    out_.append(text);
    at_ += length;
    return {};
  }

  /// Consumes an escape that means the same character, or the same set, within a class and
  /// outside.
  Result<std::string> common_escape(bool in_class) {
    if (at_ + 1 >= pattern_.size()) return refuse("a trailing backslash");
    const char c = pattern_[at_ + 1];
    const auto rest = pattern_.substr(at_ + 2);
    std::size_t length = 2;
    std::string text(pattern_.substr(at_, 2));
    const bool letter_or_digit = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    if (c == 'u' && rest.size() >= 4 && is_hex(rest.substr(0, 4))) {
      length = 6;
      text = "\\x{" + std::string(rest.substr(0, 4)) + "}";
    } else if (c == 'x' && rest.size() >= 2 && is_hex(rest.substr(0, 2)) && rest[0] < '8') {
      length = 4;
      text = "\\x{" + std::string(rest.substr(0, 2)) + "}";
    } else if ((c == 'p' || c == 'P' || c == 'x') && rest.starts_with('{')) {
      const auto close = rest.find('}');
      if (close == rest.npos) return refuse("an unclosed brace");
      std::string name(rest.substr(1, close - 1));
      const std::size_t sign = name.starts_with('^') ? 1 : 0;
      // Categories have one or two letters. For PCRE2 a script's plain name means its extensions.
      if (c != 'x' && name.size() - sign > 2 && name.substr(sign) != "Any")
        name.insert(sign, "sc:");
      text = std::string("\\") + c + "{" + name + "}";
      length = close + 3;
    } else if (letter_or_digit && std::string_view("rntdDf").find(c) == std::string_view::npos) {
      return refuse(std::string("\\") + c + (in_class ? " in a class" : ""));
    }
    at_ += length;
    return text;
  }

  Status escape() {
    const char c = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    switch (c) {
      case 's':
        return take(2, bracket("[", kWhiteSpace));
      case 'S':
        return take(2, bracket("[^", kWhiteSpace));
      case 'w':
        return take(2, bracket("[", kWord));
      case 'W':
        return take(2, bracket("[^", kWord));
      case 'h':
        return take(2, bracket("[", kHexDigit));
      case 'H':
        return take(2, bracket("[^", kHexDigit));
      case 'b':
      case 'B': {
        const std::string word = bracket("[", kWord);
        const std::string inner =
            c == 'b' ? "(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + ")"
                     : "(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + ")";
        return take(2, "(?:" + inner + ")");
      }
      case 'A':
      case 'z':
      case 'Z':
        return take(2, pattern_.substr(at_, 2));
      default:
        break;
    }
    DSJ_TRY(const std::string text, common_escape(false));
    out_ += text;
    return {};
  }

  /// Parses a class, from its [ to its ].
  Result<Class> character_class(std::size_t depth) {
    if (depth > kDepthMax) return refuse("a class nested this deep");
    if (ahead("[:")) return refuse("a POSIX class");
    Class one;
    ++at_;
    if (ahead("^")) {
      one.negated = true;
      ++at_;
    }
    if (ahead("]")) return refuse("an empty class");
    std::string before;  // lookaheads for the left sides of &&
    while (!ahead("]")) {
      if (at_ >= pattern_.size()) return refuse("an unclosed class");
      if (ahead("&&")) {
        if (one.items.empty() && one.others.empty()) return refuse("&& without a left side");
        before += "(?=" + Class{one.items, one.others}.whole() + ")";
        one.items.clear();
        one.others.clear();
        at_ += 2;
        continue;
      }
      DSJ_TRY_STATUS(class_member(one, depth));
    }
    ++at_;
    if (one.items.empty() && one.others.empty()) return refuse("&& without a right side");
    if (!before.empty()) {
      one.others = {"(?:" + before + Class{one.items, one.others}.whole() + ")"};
      one.items.clear();
    }
    return one;
  }

  Status class_member(Class& one, std::size_t depth) {
    const char c = pattern_[at_];
    if (c == '[') {
      DSJ_TRY(const Class inner, character_class(depth + 1));
      if (!inner.negated && inner.others.empty()) {
        one.items += inner.items;
      } else {
        one.others.push_back(inner.whole());
      }
      return {};
    }
    if (c != '\\') {
      one.items += c;
      ++at_;
      return {};
    }
    const char kind = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const std::string_view known = (kind | 32) == 's'   ? kWhiteSpace
                                   : (kind | 32) == 'w' ? kWord
                                   : (kind | 32) == 'h' ? kHexDigit
                                                        : std::string_view();
    if (known.empty()) {
      DSJ_TRY(const std::string text, common_escape(true));
      one.items += text;
      return {};
    }
    at_ += 2;
    if (kind >= 'a') {
      one.items += known;
    } else {
      one.others.push_back(bracket("[^", known));
    }
    return {};
  }

  Status plain_character(char c) {
    if (c == '^') return take(1, kLineBegin);
    if (c == '$') return take(1, kLineEnd);
    if (c == '{') return interval();
    if (c == '(') open_.push_back(out_.size());
    if (c == ')' && !open_.empty()) {
      atom_ = open_.back();
      open_.pop_back();
    }
    if (ahead("(?m:")) return take(4, "(?s:");  // Ruby's m: a dot matches any character
    if (ahead("(?i)") && at_ > 0) return refuse("(?i) after the pattern's begin");
    if (ahead("(?")) {
      static constexpr std::string_view kKnown[] = {"(?:", "(?i:", "(?-i:", "(?i)", "(?!",
                                                    "(?=", "(?<=", "(?<!",  "(?>"};
      for (const auto group : kKnown) {
        if (ahead(group)) return take(group.size(), group);
      }
      return refuse("this kind of group");
    }
    if (ahead("(*")) return refuse("a verb");
    return take(1, pattern_.substr(at_, 1));
  }

  Status literal_brace() {
    atom_ = out_.size();
    return take(1, "\\{");
  }

  /// {n}, {n,}, {n,m}, {,m}; any other brace is a plain character. In Ruby a + after it repeats
  /// the whole again, and a ? after {n} makes it optional.
  Status interval() {
    std::size_t end = at_ + 1;
    const auto digits = [&] {
      const std::size_t begin = end;
      while (end < pattern_.size() && pattern_[end] >= '0' && pattern_[end] <= '9') ++end;
      return pattern_.substr(begin, end - begin);
    };
    const std::string_view low = digits();
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) ++end;
    const std::string_view high = comma ? digits() : low;
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && high.empty()))
      return literal_brace();
    ++end;
    std::string text = "{" + (low.empty() ? std::string("0") : std::string(low));
    if (comma) text.append(",").append(high);
    text += '}';
    const char next = end < pattern_.size() ? pattern_[end] : '\0';
    const bool again = next == '+' || (next == '?' && !comma);
    if (again) {
      out_.insert(atom_, "(?:");
      text.append(")").append(1, next);
    }
    return take(end - at_ + (again ? 1 : 0), text);
  }

  std::string_view pattern_;
  std::string out_;
  std::size_t at_ = 0;
  std::size_t atom_ = 0;           ///< where the item that a quantifier repeats begins in out_
  std::vector<std::size_t> open_;  ///< starts of the groups that are not closed
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

std::string whitespace_pattern() {
  const std::string word =
      R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169})"
      R"(\x{1f170}-\x{1f189}\x{200c}\x{200d})";
  return "[" + word + "]+|[^" + word + "\\s]+";
}

SplitPattern::SplitPattern(std::unique_ptr<Code> code, bool literal)
    : code_(std::move(code)), literal_(literal) {}
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
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // without JIT the interpreter is used
  return SplitPattern(std::move(code), literal);
}

Status SplitPattern::match(std::string_view text, std::vector<Span>& matches) const {
  matches.clear();
  // One block per thread. It has room for the offsets of the whole match only.
  struct Block {
    pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
    ~Block() { pcre2_match_data_free(data); }
  };
  static thread_local const Block block;
  std::string known;
  if (!literal_) known = as_unicode14(text);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(known.empty() ? text.data() : known.data());
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
