#include "engine/data/normalizer.h"

namespace dsj::data {

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

std::string Normalizer::apply(std::string_view text) const {
  std::string normal =
      nfc != Nfc::None && !is_trivially_nfc(text) ? to_nfc(text, nfc) : std::string(text);
  for (const NormalStep& step : steps) {
    if (step.kind == NormalStep::Kind::Replace) {
      normal = replace_all(normal, step.find, step.text);
    } else if (!normal.empty()) {
      normal.insert(0, step.text);
    }
  }
  return normal;
}

}  // namespace dsj::data
