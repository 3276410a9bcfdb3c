// "~" in a path. A shell expands it only at the start of a word: "--data_path=~/rows.json" and a
// path in a file reach a program unexpanded, and would name a folder "~".
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

/// An error if a path is "~" or begins with "~/" or "~NAME/"; nullopt if it is not.
std::optional<HomePath> home_path(std::string_view path);

}  // namespace dsj
