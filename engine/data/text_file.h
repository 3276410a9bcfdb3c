// Whole text and JSON files, as the data room reads them. Internal to engine/data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

Result<bool> file_exists(Files& files, const std::string& path);

/// Parses text that came from `path`. A syntax error is BadInput with path:line:column.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& path);

/// A whole file, parsed, after a byte order mark is dropped.
Result<nlohmann::json> read_json_file(Files& files, const std::string& path);

}  // namespace dsj::data
