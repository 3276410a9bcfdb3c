// The verbs of `dsj`. Each verb has one file, cli/VERB.cc with run_VERB, and one row in
// main.cc's table. A verb gets its arguments without the program's name and its own name. It
// parses them, prints its result on stdout and errors on stderr, and returns the exit code
// (exit_codes.h). No exception leaves a verb.
#pragma once

#include <span>
#include <string>

#include "common/result.h"

namespace dsj::cli {

using Arguments = std::span<const std::string>;

int run_validate(Arguments args);
int run_init(Arguments args);
int run_plan(Arguments args);
int run_run(Arguments args);
int run_data(Arguments args);
int run_import(Arguments args);
int run_plot(Arguments args);
/// Runs `dsj-train generate`.
int run_generate(Arguments args);
int run_chat(Arguments args);

/// Runs the other programs one after another.
int run_quickstart(Arguments args);
int run_analyze(Arguments args);
int run_tune(Arguments args);
int run_merge(Arguments args);
int run_add_tokens(Arguments args);
int run_export(Arguments args);
int run_checkpoint(Arguments args);

/// Prints "dsj VERB: where: message (hint)" on stderr. Returns the exit code of the error's kind.
int report(const char* verb, const Error& error);

}  // namespace dsj::cli
