// `dsj-train generate`: completes the prompts of an alpaca file, greedily, with a key-value cache.
#pragma once

#include <string>
#include <vector>

namespace dsj::train {

/// --model DIR --data FILE [--max-new-tokens N] [--batch N] [-o json|text] [--limit N]. Prints
/// completions; with an "output" field in the rows also how many are exactly equal. Exit code 0, 2
/// on bad input.
int run_generate(const std::vector<std::string>& args);

}  // namespace dsj::train
