// Reads what a program under test wrote to a temporary file.
#pragma once

#include <cstdio>
#include <string>

namespace dsj::cli {

/// Its first 64 KiB: more than any test writes.
inline std::string written(std::FILE* file) {
  std::rewind(file);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  return text;
}

}  // namespace dsj::cli
