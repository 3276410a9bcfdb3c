// The `dsj run` line that goes on with an interrupted run.
// Tested by: tests/cli/run/resume_command_test.cc
#pragma once

#include <optional>
#include <string>

#include "cli/verbs.h"

namespace dsj::cli {

/// `dsj run` with `args`, quoted for a shell. If the run's resume_from_checkpoint (`from`) names where
/// to begin, the line asks for the newest checkpoint instead: it holds what the run has done since. If
/// the run `overwrites` its output directory, the line does not: that is done.
std::string resume_command(Arguments args, const std::optional<std::string>& from,
                           bool overwrites = false);

}  // namespace dsj::cli
