// The conditions and the end of a run without a cluster, in the status that `dsj run` keeps in
// status.yaml. Worker 0's agent writes the end if `dsj run` is gone. Pure.
// Tested by: tests/cli/run/run_status_test.cc, tests/agent/orphan_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "job/report/reports.h"

namespace dsj::report {

/// Sets a condition of `status`. Its time changes only with its value. `now`: RFC 3339.
void set_condition(nlohmann::json& status, const char* type, bool value, const std::string& reason,
                   const std::string& message, const std::string& now);
/// Sets phase, conditions and completion time of a run that ended.
void set_end(nlohmann::json& status, const End& end, const std::string& now);

}  // namespace dsj::report
