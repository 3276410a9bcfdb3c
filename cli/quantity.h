// Kubernetes quantities of memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::cli {

/// "512Mi", "8Gi", "2G", "1073741824", "1e9"; nothing when it is not one.
std::optional<int64_t> parse_quantity(std::string_view text);

}  // namespace dsj::cli
