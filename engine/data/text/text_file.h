// Reads whole text and JSON files for engine/data. Internal to engine/data.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

Result<bool> file_exists(Files& files, const std::string& path);

/// Parses text that was read from `path`. Errors: BadInput, with path:line:column, if it is not
/// JSON or contains a NUL byte, because the parser ignores everything after one.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& path);

/// Returns the text with null in place of NaN, Infinity and -Infinity, which Python's json
/// module writes although JSON has no such values. nullopt if none occurs outside strings.
std::optional<std::string> nulls_for_nan(std::string_view text);

/// Reads and parses a whole file; a byte order mark is skipped. Errors: BadInput also if the
/// file has another format, such as a workbook (file_form.h).
Result<nlohmann::json> read_json_file(Files& files, const std::string& path);

}  // namespace dsj::data
