// The verbs of `dsj`. One verb, one file: run_VERB in cli/VERB.cc, one row in main.cc's table.
// A verb gets its arguments without the program's and its own name, parses them itself (CLI11),
// prints to stdout what was asked for and to stderr what went wrong, and returns the exit code:
// 0 done, 1 the job failed or findings, 2 bad input (nothing was started), 3 environment,
// 130 interrupted. No exception leaves a verb.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "common/result.h"

namespace CLI {
class App;
}

namespace dsj::cli {

using Arguments = std::span<const std::string>;

int run_validate(Arguments args);
int run_plan(Arguments args);
int run_run(Arguments args);
int run_import(Arguments args);
int run_plot(Arguments args);
/// Replaces this process by `dsj-train generate`; returns only when that cannot be started.
int run_generate(Arguments args);

int run_merge(Arguments args);

/// Prints "dsj VERB: where: message (hint)" on stderr; returns the exit code of the error's kind.
int report(const char* verb, const Error& error);

/// CLI11 from a verb's arguments. A value: the verb is over with it (0 after --help, 2 after a
/// mistake, both printed).
std::optional<int> parse(CLI::App& app, Arguments args);

}  // namespace dsj::cli
