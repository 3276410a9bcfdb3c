// Names or paths in one text, separated by commas. Tested by: tests/common/path_list_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj {

/// "a, b,,c" → a, b, c.
inline std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    text.remove_prefix(comma == text.npos ? text.size() : comma + 1);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

/// Paths of a job that was read: each of several is absolute, so a comma that is part of a name
/// ("/a,b") is not followed by "/".
inline std::vector<std::string> split_paths(std::string_view text) {
  std::vector<std::string> paths;
  for (size_t begin = 0; begin < text.size();) {
    const size_t comma = text.find(",/", begin);
    paths.emplace_back(text.substr(begin, comma == text.npos ? comma : comma - begin));
    begin = comma == text.npos ? text.size() : comma + 1;
  }
  return paths;
}

}  // namespace dsj
