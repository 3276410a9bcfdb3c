// A resolved config as JSON. Pure.
#pragma once

#include <nlohmann/json.hpp>

#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

/// For the "resolved" event, the status and dsj plan. Every key with a field (Key::field) has its
/// own path; those of monitors and profilers are under "watching".
nlohmann::json to_json(const ResolvedConfig& config);

/// Only curriculum and random-LTD; an empty object if both are off.
nlohmann::json to_json(const DataEfficiencyConfig& config);

}  // namespace dsj::dsconfig
