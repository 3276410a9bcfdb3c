// The other programs of DeepSpeedJob, which lie beside this one, and how a verb runs one to its end.
// Tested by: tests/run/fake/run_test.cc, tests/run/quickstart_check.py
#pragma once

#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::cli {

/// The path of a program beside this one. Environment: it is not there.
Result<std::string> program_beside(const std::string& name);

/// DSJ_TRAIN_PROGRAM, else dsj-train beside this program. Environment: it is not a program.
Result<std::string> engine_program();

/// Runs `command` (its first word is a path) and waits for its end. Meanwhile Ctrl-C is the program's
/// alone, and a signal that ends this process ends the program with SIGTERM. `output`: the file that
/// takes its stdout; empty: this process's own. Returns its exit code; 128 + N if signal N ended it;
/// contract::kExitNotStarted if the loader did not find a library. Environment: it does not start.
Result<int> run_to_the_end(std::vector<std::string> command, const std::string& output = "");

}  // namespace dsj::cli
