// Converts other tools' lists of trained parameters to spec.training.trainableParameters.
// Tested by: tests/cli/import/recipe_test.cc, tests/cli/import/swift_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj::jobimport {

/// A regular expression that matches only this text.
inline std::string literal(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}

/// An alternation of the expressions; empty if there are none.
inline std::string either(const std::vector<std::string>& expressions) {
  std::string text;
  for (const std::string& one : expressions) text += (text.empty() ? "" : "|") + one;
  return text;
}

}  // namespace dsj::jobimport
