// A resolved config as JSON. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "job/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// For the "resolved" event, the status and dsj plan. Every key with a field (Key::field) is shown
/// under its own path, those of monitors and profilers under "watching".
nlohmann::json to_json(const ResolvedConfig& config);

/// Curriculum and random-LTD alone; an empty object: neither is on.
nlohmann::json to_json(const DataEfficiencyConfig& config);

}  // namespace dsj::dsconfig
