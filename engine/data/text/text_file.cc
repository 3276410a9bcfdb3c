#include "engine/data/text/text_file.h"

#include <algorithm>

#include "common/files/file_form.h"
#include "common/json_depth.h"
#include "engine/data/text/unicode.h"

namespace dsj::data {

Result<bool> file_exists(Files& files, const std::string& path) {
  DSJ_TRY(const EntryKind kind, files.kind(path));
  return kind == EntryKind::File;
}

std::optional<std::string> nulls_for_nan(std::string_view text) {
  static constexpr std::string_view kConstants[] = {"-Infinity", "Infinity", "NaN"};
  if (text.find("NaN") == std::string_view::npos && text.find("Infinity") == std::string_view::npos)
    return std::nullopt;
  std::string made;
  bool in_string = false, found = false;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    size_t length = 1;
    if (in_string && c == '\\') {
      length = 2;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : kConstants)
        if (length == 1 && text.substr(at).starts_with(word)) length = word.size();
    }
    const bool constant = length > 2;
    found = found || constant;
    made += constant ? "null" : text.substr(at, length);
    at += length;
  }
  return found ? std::optional(std::move(made)) : std::nullopt;
}

Result<nlohmann::json> parse_json(std::string_view text, const std::string& path) {
  if (json_depth(text) > kJsonDepthMax) return bad_input("is nested too deep", path);
  if (const std::size_t nul = text.find('\0'); nul != text.npos) {
    return bad_input(
        "has a NUL byte (byte " + std::to_string(nul) +
            " of its text), and JSON has none: the file was damaged when it was written",
        path);
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t offset = error.byte > 0 ? std::min(error.byte - 1, text.size()) : 0;
    std::size_t line = 1, column = 1;
    for (const char c : text.substr(0, offset)) {
      column = c == '\n' ? 1 : column + 1;
      line += c == '\n';
    }
    // The library says "[json.exception.parse_error.101] parse error at line 1, column 2:
    // syntax error ...". The location is in `where` already, so only the rest is kept.
    std::string what = error.what();
    if (const auto colon = what.find(": "); colon != std::string::npos) what.erase(0, colon + 2);
    // The library quotes the last bytes that it read, including ill-formed UTF-8.
    return bad_input("is not JSON: " + to_valid_utf8(what),
                     path + ":" + std::to_string(line) + ":" + std::to_string(column));
  } catch (const nlohmann::json::out_of_range& error) {  // 1e999; the library gives no location
    std::string what = error.what();
    if (const auto space = what.find("] "); space != std::string::npos) what.erase(0, space + 2);
    return bad_input("is not JSON: " + to_valid_utf8(what), path);
  }
}

Result<nlohmann::json> read_json_file(Files& files, const std::string& path) {
  DSJ_TRY(const std::string text, files.read_all(path));
  if (const auto form = file_form(text)) {
    return bad_input("is " + std::string(form->name) + ", expected JSON", path,
                     std::string(form->remedy));
  }
  std::string_view view = text;
  if (view.starts_with("\xEF\xBB\xBF")) view.remove_prefix(3);
  return parse_json(view, path);
}

}  // namespace dsj::data
