// YAML as plain JSON with positions. The only file that calls yaml-cpp. Scalars by YAML 1.2's core
// rules: 2e8 and 1e-6 are numbers, `no` is a string. Duplicate keys, several documents and merge
// keys are errors; size, depth and expanded aliases are limited.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/dsconfig/reader.h"
#include "common/result.h"

namespace dsj::jobspec {

/// Errors: where = "SOURCE:LINE:COLUMN".
Result<dsconfig::Document> parse_yaml(const std::string& text, const std::string& source);
/// Reads the file (at most 1 MiB), then parse_yaml.
Result<dsconfig::Document> read_yaml(const std::string& path);

/// Block style, keys in order; strings that would read as something else are quoted.
std::string to_yaml(const nlohmann::json& value);

}  // namespace dsj::jobspec
