// The files that lie beside the checkout and are no part of it: recorded runs of DeepSpeed (golden/), real files of
// public repositories (corpus/). A test that reads them skips where they are absent, and says so.
#pragma once

#include <cstdlib>
#include <filesystem>

#include "test_paths.h"

namespace dsj::testing_support {

/// DSJ_SHARED_DIR, or shared/ beside the checkout. It need not exist.
inline std::filesystem::path shared_directory() {
  const char* named = std::getenv("DSJ_SHARED_DIR");
  return named != nullptr ? std::filesystem::path(named)
                          : std::filesystem::path(DSJ_SOURCE_DIR) / ".." / "shared";
}

inline std::filesystem::path golden_directory() {
  return shared_directory() / "golden";
}

}  // namespace dsj::testing_support
