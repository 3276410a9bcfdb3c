#include "cli/import/shell_text.h"

#include "common/files/files.h"

namespace dsj::jobimport {

size_t end_of_open(std::string_view text, size_t at) {
  if (text[at] == '`') {
    const size_t end = text.find('`', at + 1);
    return end == std::string_view::npos ? 0 : end + 1;
  }
  if (text[at] != '$' || at + 1 >= text.size() || (text[at + 1] != '(' && text[at + 1] != '{'))
    return 0;
  const bool braces = text[at + 1] == '{';
  int open = 0;
  char quote = 0;
  for (size_t i = at + 1; i < text.size(); ++i) {
    const char c = text[i];
    if (braces && c == '\\') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (braces && c == '"') {
      quote = c;
    } else if (c == (braces ? '{' : '(')) {
      ++open;
    } else if (c == (braces ? '}' : ')') && --open == 0) {
      return i + 1;
    }
  }
  return 0;
}

std::optional<std::string> directory_of(std::string command, const std::string& source, int depth) {
  if (depth > 2 || command.size() > 1000) return std::nullopt;
  std::erase_if(command, [](char c) { return c == '"' || c == '\''; });
  if (command.starts_with('`')) command = "$(" + command.substr(1, command.size() - 2) + ")";
  if (!command.starts_with("$(") || !command.ends_with(")")) return std::nullopt;
  std::string inside = command.substr(2, command.size() - 3);
  if (inside == "pwd" || inside == "pwd -P") return ".";
  for (const char* own :
       {"$0", "${0}", "$BASH_SOURCE", "${BASH_SOURCE}", "${BASH_SOURCE[0]}", "$(realpath $0)",
        "$(readlink -f $0)", "$(realpath ${BASH_SOURCE[0]})", "$(readlink -f ${BASH_SOURCE[0]})"})
    if (inside == std::string("dirname ") + own || inside == std::string("dirname -- ") + own)
      return path_parent(source).empty() ? "." : path_parent(source);
  if (!inside.starts_with("cd ")) return std::nullopt;
  for (const std::string quiet : {"&>/dev/null", ">/dev/null", "> /dev/null", "2>&1"})
    if (const size_t at = inside.find(quiet); at != std::string::npos)
      inside.erase(at, quiet.size());
  const size_t end = inside.find_first_of("&;");
  const size_t pwd = end == std::string::npos ? end : inside.find_first_not_of("&; ", end);
  if (pwd == std::string::npos || !inside.substr(pwd).starts_with("pwd")) return std::nullopt;
  inside = inside.substr(3, end - 3);
  for (const char* noise : {"-P ", "-- "})
    if (inside.starts_with(noise)) inside.erase(0, 3);
  while (inside.ends_with(' ')) inside.pop_back();
  size_t close = 0;
  if (inside.starts_with("$(")) close = inside.rfind(')');
  if (close == std::string::npos || close == 0) return std::nullopt;
  const auto directory = directory_of(inside.substr(0, close + 1), source, depth + 1);
  const std::string below = inside.substr(close + 1);
  if (!directory || below.find_first_not_of("./") != std::string::npos) return std::nullopt;
  return *directory + below;
}

}  // namespace dsj::jobimport
