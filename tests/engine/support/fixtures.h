// Where the fixtures lie that several rooms read: tests/fixtures.
#pragma once

#include <string>

#include "test_paths.h"

namespace dsj::testing_support {

inline std::string fixture(const std::string& name) {
  return std::string(DSJ_SOURCE_DIR) + "/tests/fixtures/" + name;
}

}  // namespace dsj::testing_support
