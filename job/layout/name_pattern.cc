#include "job/layout/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace dsj::layout {
namespace {

std::string pattern_message(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

void NamePattern::Free::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Result<NamePattern> NamePattern::compile(const std::string& pattern, Part part) {
  int error = 0;
  PCRE2_SIZE at = 0;
  NamePattern made;
  const uint32_t whole = part == Part::Whole ? PCRE2_ENDANCHORED : 0;
  made.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                 PCRE2_ANCHORED | whole | PCRE2_UTF, &error, &at, nullptr));
  if (!made.code_) {
    return bad_input("\"" + pattern + "\" is not a regular expression: " + pattern_message(error) +
                     " at character " + std::to_string(at + 1));
  }
  return made;
}

Result<bool> NamePattern::matches(const std::string& name) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  pcre2_match_data* data = pcre2_match_data_create_from_pattern(code, nullptr);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                data, nullptr);
  pcre2_match_data_free(data);
  if (found >= 0) return true;
  if (found == PCRE2_ERROR_NOMATCH) return false;
  return bad_input("the regular expression cannot be matched with \"" + name +
                   "\": " + pattern_message(found));
}

}  // namespace dsj::layout
