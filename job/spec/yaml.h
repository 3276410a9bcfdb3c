// Reads YAML as plain JSON with positions. The only file that calls yaml-cpp. Scalars follow YAML
// 1.2's core rules: 2e8 and 1e-6 are numbers, `no` is a string. Duplicate keys, several documents
// and merge keys are errors. Size, depth and expanded aliases are limited.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "common/result.h"
#include "job/dsconfig/read/reader.h"

namespace dsj::jobspec {

/// How plain scalars are read. Core: as above; << is an error. Omega: as OmegaConf reads them (YAML
/// 1.1 without timestamps, with 1e-6 a number): yes/no/on/off are booleans, 010 is 8, 0x10 is 16,
/// 1_000 is 1000, 1:30 is 90, << merges, and a file of comments is an empty object.
enum class Dialect { Core, Omega };

/// Errors: BadInput at "SOURCE:LINE:COLUMN". `kind`: if there are several documents, as for
/// kubectl, reads the only one of this kind.
Result<dsconfig::Document> parse_yaml(const std::string& text, const std::string& source,
                                      Dialect dialect = Dialect::Core, std::string_view kind = {});
/// Reads the file (at most 1 MiB) and parses it.
Result<dsconfig::Document> read_yaml(const std::string& path, Dialect dialect = Dialect::Core,
                                     std::string_view kind = {});

/// Writes block style, keys in order. Quotes strings that would be read as another type.
std::string to_yaml(const nlohmann::json& value);

}  // namespace dsj::jobspec
