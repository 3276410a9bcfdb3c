// The `dsj run` line that continues an interrupted run.
// Tested by: tests/cli/run/resume_command_test.cc
#pragma once

#include <optional>
#include <string>

#include "cli/verbs.h"

namespace dsj::cli {

/// `dsj run` with `args`, quoted for a shell. If the run's resume_from_checkpoint (`from`) names
/// a checkpoint, the line asks for the newest one instead, which includes this run's progress. If
/// the run `overwrites` its output directory, the line omits that, because it is already done.
std::string resume_command(Arguments args, const std::optional<std::string>& from,
                           bool overwrites = false);

}  // namespace dsj::cli
