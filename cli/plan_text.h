// Prints a job's plan on one screen, from the document of `dsj plan -o yaml`. Pure.
// Tested by: tests/cli/plan_test.cc
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dsj::cli {

/// Lines, each ending with '\n': the job, memory by class against its limit, steps, the
/// learning rates, the bytes sent per step, and the roofline if there is one. Unknown values
/// are marked as such.
std::string plan_text(const nlohmann::json& plan);

}  // namespace dsj::cli
