#include "engine/data/text_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace dsj::data {

bool file_exists(const std::string& path) {
  std::error_code code;
  return std::filesystem::is_regular_file(path, code);
}

Result<std::string> read_text_file(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) return bad_input("no such file", path);
  if (!std::filesystem::is_regular_file(path, code)) return bad_input("is not a file", path);
  std::ifstream stream(path, std::ios::binary);
  const auto size = std::filesystem::file_size(path, code);
  if (!stream || code) {
    return fail(ErrorKind::Environment, std::string("cannot be opened: ") + std::strerror(errno),
                path);
  }
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<uintmax_t>(stream.gcount()) != size) {
    return fail(
        ErrorKind::Environment,
        "read " + std::to_string(stream.gcount()) + " of " + std::to_string(size) + " bytes", path);
  }
  return text;
}

Result<nlohmann::json> parse_json(std::string_view text, const std::string& path) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t offset = error.byte > 0 ? std::min(error.byte - 1, text.size()) : 0;
    std::size_t line = 1, column = 1;
    for (const char c : text.substr(0, offset)) {
      column = c == '\n' ? 1 : column + 1;
      line += c == '\n';
    }
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ...": the
    // place is ours, the rest is the library's.
    std::string what = error.what();
    if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
    return bad_input("is not JSON: " + what,
                     path + ":" + std::to_string(line) + ":" + std::to_string(column));
  }
}

Result<nlohmann::json> read_json_file(const std::string& path) {
  DSJ_TRY(const std::string text, read_text_file(path));
  std::string_view view = text;
  if (view.starts_with("\xEF\xBB\xBF")) view.remove_prefix(3);
  return parse_json(view, path);
}

}  // namespace dsj::data
