// What other tools call the parameters that a run trains, as spec.training.trainableParameters has it.
// Tested by: tests/cli/import/recipe_test.cc, tests/cli/import/swift_test.cc
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsj::jobimport {

/// An expression that matches this text alone.
inline std::string literal(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}

/// Matches what one of them matches. Empty: there are none.
inline std::string either(const std::vector<std::string>& expressions) {
  std::string text;
  for (const std::string& one : expressions) text += (text.empty() ? "" : "|") + one;
  return text;
}

}  // namespace dsj::jobimport
