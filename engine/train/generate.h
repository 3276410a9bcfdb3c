// `dsj-train generate`: completes the prompts of an alpaca file, greedily, with a key-value cache.
#pragma once

#include <string>
#include <vector>

namespace dsj::train {

/// --model DIR --data FILE [--max-new-tokens N] [--batch N] [-o json|text] [--limit N]. Prints the
/// completions. Where rows have an "output" field, also prints how many are exactly equal to it.
/// Exit code 0, or 2 on bad input.
int run_generate(const std::vector<std::string>& args);

}  // namespace dsj::train
