// Texts with random small edits, for tests of readers that take any bytes.
#pragma once

#include <random>
#include <string>

namespace dsj::testing_support {

/// `text` with 1 to `edits_max` edits: up to `cut_max` bytes cut, or one byte of `alphabet` put in or written over.
/// Empty when everything was cut.
inline std::string edited(std::string text, const std::string& alphabet, std::mt19937& random,
                          int edits_max, int cut_max) {
  for (int edits = 1 + static_cast<int>(random() % edits_max); edits > 0 && !text.empty();
       --edits) {
    const size_t at = random() % text.size();
    const char byte = alphabet[random() % alphabet.size()];
    switch (random() % 3) {
      case 0:
        text.erase(at, 1 + random() % cut_max);
        break;
      case 1:
        text.insert(at, 1, byte);
        break;
      default:
        text[at] = byte;
    }
  }
  return text;
}

}  // namespace dsj::testing_support
