// Parses memory quantities in Kubernetes' notation.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::cli {

/// "512Mi", "8Gi", "2G", "1073741824", "1e9"; nullopt for any other form.
std::optional<int64_t> parse_quantity(std::string_view text);

}  // namespace dsj::cli
