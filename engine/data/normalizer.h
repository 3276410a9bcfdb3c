// What happens to a text before it is cut: canonical composition, then steps of SentencePiece's
// form. Internal to engine/data.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/unicode.h"

namespace dsj::data {

struct NormalStep {
  enum class Kind { Prepend, Replace };
  Kind kind = Kind::Prepend;
  std::string find;  ///< Replace: plain text, not empty
  std::string text;  ///< Prepend: put in front; Replace: the replacement
};

struct Normalizer {
  Nfc nfc = Nfc::None;
  std::vector<NormalStep> steps;  ///< after nfc, in order

  bool empty() const { return nfc == Nfc::None && steps.empty(); }
  /// Well-formed text in, well-formed text out. An empty text stays empty.
  std::string apply(std::string_view text) const;
};

/// Replaces every `find` by `text`, from the left, without overlap.
std::string replace_all(std::string_view in, std::string_view find, std::string_view text);

}  // namespace dsj::data
