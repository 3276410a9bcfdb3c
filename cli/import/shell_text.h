// Pieces of a shell's text whose value or end is known without running anything. Internal to cli/import.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::jobimport {

/// Behind the "$(...)", "${...}" or "`...`" that begins at `at`; 0: none does, or it does not end.
size_t end_of_open(std::string_view text, size_t at);

/// Of `pwd`, the directory in which scripts are started, and of $(dirname $0), that of the script
/// `source`, as relative paths; also in $(cd "$(dirname "$0")/.." && pwd). nullopt: another command.
std::optional<std::string> directory_of(std::string command, const std::string& source,
                                        int depth = 0);

}  // namespace dsj::jobimport
