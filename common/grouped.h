// Formats whole numbers for people.
// Tested by: tests/common/format_test.cc
#pragma once

#include <cstdint>
#include <string>

namespace dsj::text {

/// "52,002".
inline std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int64_t>(digits.size()) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

}  // namespace dsj::text
