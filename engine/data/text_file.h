// Whole text and JSON files, as the data room reads them. Internal to engine/data.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/result.h"

namespace dsj::data {

bool file_exists(const std::string& path);

/// The bytes of a file. BadInput when it is not there or not a regular file, Environment when it
/// cannot be read.
Result<std::string> read_text_file(const std::string& path);

/// Parses text that came from `path`. A syntax error is BadInput with path:line:column.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& path);

/// read_text_file and parse_json, after a byte order mark is dropped.
Result<nlohmann::json> read_json_file(const std::string& path);

}  // namespace dsj::data
