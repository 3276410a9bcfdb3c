// "~" in a path. A shell replaces it only where a word begins with it: "--data_path=~/rows.json" and
// a path in a file reach a program as they are, and would name a folder "~".
// Tested by: tests/common/home_path_test.cc
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dsj {

struct HomePath {
  std::string message;  ///< "\"~/rows.json\": ~ is not expanded here"
  std::string hint;     ///< "write /home/ada/rows.json"
};

/// What is wrong with a path that begins with "~/" or "~NAME/", or is "~"; nullopt: it does not.
std::optional<HomePath> home_path(std::string_view path);

}  // namespace dsj
