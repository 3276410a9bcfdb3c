// How a file of a recorded run of DeepSpeed is read.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/shared_files.h"

namespace dsj::testing_support {

/// Ours is one more run like the reference's own under another CPU, and the widest of few distances is
/// not the widest there is: our run may be so many times as far from the record
/// (docs/decisions.md, "A numeric tolerance is measured").
constexpr double kSpreads = 4;

inline nlohmann::json read_golden(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  // Python writes an infinite norm as no JSON knows it.
  for (size_t at; (at = text.find("Infinity")) != std::string::npos;) text.replace(at, 8, "null");
  return nlohmann::json::parse(text);
}

}  // namespace dsj::testing_support
