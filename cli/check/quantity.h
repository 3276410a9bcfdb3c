// Memory quantities as Kubernetes writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsj::cli {

/// "512Mi", "8Gi", "2G", "1073741824", "1e9"; nullopt: another form.
std::optional<int64_t> parse_quantity(std::string_view text);

}  // namespace dsj::cli
