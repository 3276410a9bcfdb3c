// The plan of a job on one screen, from the document that `dsj plan -o yaml` prints. Pure.
// Tested by: tests/cli/plan_test.cc
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace dsj::cli {

/// Lines that end with '\n': the job, memory by class against its limit, steps, the schedule's rates,
/// what a step sends, the roofline where there is one. What the document leaves open is said to be.
std::string plan_text(const nlohmann::json& plan);

}  // namespace dsj::cli
