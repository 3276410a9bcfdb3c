// Finds and runs the other programs of DeepSpeedJob, which are in this program's directory.
// Tested by: tests/run/fake/run_test.cc, tests/run/quickstart_check.py
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::cli {

/// The path of a program in this program's directory. Errors: Environment if it is missing.
Result<std::string> program_beside(const std::string& name);

/// DSJ_TRAIN_PROGRAM, else dsj-train in this directory. Errors: Environment if not executable.
Result<std::string> engine_program();

/// Runs `command` (its first word is a path) to its end. Meanwhile Ctrl-C goes to the child
/// only, and a signal that ends this process ends the child by SIGTERM. `output`: the file for
/// its stdout; empty means this process's stdout. Returns its exit code; 128 + N if signal N
/// ended it; contract::kExitNotStarted if the loader did not find a library. Errors:
/// Environment if it does not start.
Result<int> run_to_the_end(std::vector<std::string> command, const std::string& output = "");

}  // namespace dsj::cli
