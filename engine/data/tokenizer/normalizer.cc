#include "engine/data/tokenizer/normalizer.h"

#include <algorithm>

namespace dsj::data {
namespace {

std::string stripped(std::string_view text, const NormalStep& step) {
  while (step.left && !text.empty()) {
    const CodePoint c = code_point_at(text, 0);
    if (!is_white_space(c.value)) break;
    text.remove_prefix(c.length);
  }
  while (step.right && !text.empty()) {
    const CodePoint c = code_point_before(text, text.size());
    if (!is_white_space(c.value)) break;
    text.remove_suffix(c.length);
  }
  return std::string(text);
}

/// `put(code point, out)` appends the replacement of a character.
template <typename Put>
std::string each_character(std::string_view text, Put put) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    put(c.value, out);
    at += c.length;
  }
  return out;
}

void put_nmt(char32_t c, std::string& out) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return;
  }
  const bool space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                     (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                     c == 0xFEFF || c == 0xFFFD;
  append_utf8(space ? U' ' : c, out);
}

Result<std::string> replaced(std::string_view text, const NormalStep& step) {
  if (!step.pattern) return replace_all(text, step.find, step.text);
  std::vector<Span> matches;
  DSJ_TRY_STATUS(step.pattern->match(text, matches));
  std::string out;
  std::size_t done = 0;
  for (const Span& match : matches) {
    out.append(text.substr(done, match.begin - done)).append(step.text);
    done = match.end;
  }
  return out.append(text.substr(done));
}

}  // namespace

std::string replace_all(std::string_view in, std::string_view find, std::string_view text) {
  std::string out;
  out.reserve(in.size());
  for (std::size_t at = 0; at < in.size();) {
    const std::size_t found = find.empty() ? in.npos : in.find(find, at);
    out += in.substr(at, found - at);
    if (found == in.npos) break;
    out += text;
    at = found + find.size();
  }
  return out;
}

bool Normalizer::keeps(std::string_view text) const {
  return std::ranges::all_of(steps, [&](const NormalStep& step) {
    return step.kind == NormalStep::Kind::Form && is_trivially_normal(text, step.form);
  });
}

Result<std::string> Normalizer::apply(std::string_view text) const {
  std::string normal(text);
  for (const NormalStep& step : steps) {
    switch (step.kind) {
      case NormalStep::Kind::Form:
        if (!is_trivially_normal(normal, step.form))
          normal = to_normal_form(normal, step.form, step.tables);
        break;
      case NormalStep::Kind::Prepend:
        if (!normal.empty()) normal.insert(0, step.text);
        break;
      case NormalStep::Kind::Replace: {
        DSJ_TRY(normal, replaced(normal, step));
        break;
      }
      case NormalStep::Kind::Lowercase:
        normal = each_character(normal, append_lower);
        break;
      case NormalStep::Kind::Strip:
        normal = stripped(normal, step);
        break;
      case NormalStep::Kind::StripAccents:
        normal = each_character(normal, [](char32_t c, std::string& out) {
          if (!is_accent(c)) append_utf8(c, out);
        });
        break;
      case NormalStep::Kind::Nmt:
        normal = each_character(normal, put_nmt);
        break;
    }
  }
  return normal;
}

}  // namespace dsj::data
