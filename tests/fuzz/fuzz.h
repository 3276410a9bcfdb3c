// What every target shares: the bytes as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace dsj::fuzz {

inline std::string text_of(const uint8_t* data, size_t size) {
  return std::string(reinterpret_cast<const char*>(data), size);
}

/// A broken promise of a reader, which the fuzzer reports.
inline void require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace dsj::fuzz
