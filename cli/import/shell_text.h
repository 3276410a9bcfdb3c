// Evaluates parts of shell text without running anything. Internal to cli/import.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::jobimport {

/// The offset after the "$(...)", "${...}" or "`...`" at `at`; 0 if there is none or it has no end.
size_t end_of_open(std::string_view text, size_t at);

/// The relative path of `pwd` (the directory in which scripts are started) or of $(dirname $0)
/// (that of the script `source`); also of $(cd "$(dirname "$0")/.." && pwd). nullopt for other
/// commands.
std::optional<std::string> directory_of(std::string command, const std::string& source,
                                        int depth = 0);

}  // namespace dsj::jobimport
