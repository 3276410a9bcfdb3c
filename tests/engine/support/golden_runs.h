// The recorded runs of DeepSpeed: where they lie, and how a file of them is read. Tests skip where they are absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "test_paths.h"

namespace dsj::testing_support {

inline std::filesystem::path golden_directory() {
  const char* shared = std::getenv("DSJ_SHARED_DIR");
  return std::filesystem::path(shared ? shared : DSJ_SOURCE_DIR "/../shared") / "golden";
}

inline nlohmann::json read_golden(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  // Python writes an infinite norm as no JSON knows it.
  for (size_t at; (at = text.find("Infinity")) != std::string::npos;) text.replace(at, 8, "null");
  return nlohmann::json::parse(text);
}

}  // namespace dsj::testing_support
