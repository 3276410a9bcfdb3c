// Whole text and JSON files, as engine/data reads them. Internal to engine/data.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

Result<bool> file_exists(Files& files, const std::string& path);

/// Parses text that came from `path`. BadInput, with path:line:column: a syntax error, or a NUL byte,
/// behind which the parser would read nothing.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& path);

/// Python's json module writes NaN, Infinity and -Infinity, which JSON does not know. The text with null
/// in their place; nullopt: it has none of them outside its strings.
std::optional<std::string> nulls_for_nan(std::string_view text);

/// Reads and parses a whole file, without its byte order mark. BadInput, too: it is a file of another
/// form (file_form.h).
Result<nlohmann::json> read_json_file(Files& files, const std::string& path);

}  // namespace dsj::data
