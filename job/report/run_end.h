// The conditions of a run without a cluster, and its end, in the status that `dsj run` keeps in
// status.yaml. Worker 0's agent writes the end there when `dsj run` is gone. Pure.
// Tested by: tests/cli/run_status_test.cc, tests/agent/orphan_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "job/report/reports.h"

namespace dsj::report {

/// Sets a condition of `status`. Its time changes with its value. `now`: RFC 3339.
void set_condition(nlohmann::json& status, const char* type, bool value, const std::string& reason,
                   const std::string& message, const std::string& now);
/// Phase, conditions and completion time of a run that ended.
void set_end(nlohmann::json& status, const End& end, const std::string& now);

}  // namespace dsj::report
