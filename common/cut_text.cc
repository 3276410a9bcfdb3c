#include "common/cut_text.h"

#include <algorithm>

namespace dsj::text {
namespace {

/// Whether a character begins here, or the text ends.
bool is_border(std::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

}  // namespace

std::string first_bytes(std::string_view text, size_t most) {
  size_t end = std::min(most, text.size());
  for (int i = 0; i < 3 && end > 0 && !is_border(text, end); ++i) --end;
  return std::string(text.substr(0, end));
}

std::string last_bytes(std::string_view text, size_t most) {
  size_t begin = text.size() - std::min(most, text.size());
  for (int i = 0; i < 3 && begin > 0 && !is_border(text, begin); ++i) ++begin;
  return std::string(text.substr(begin));
}

}  // namespace dsj::text
