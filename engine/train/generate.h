// `dsj-train generate`: answers questions, greedily, with a key-value cache.
#pragma once

#include <string>
#include <vector>

namespace dsj::train {

/// --model DIR [--data FILE | --prompt TEXT [--raw]] [--chat-template NAME] [--max-new-tokens N]
/// [--batch N] [-o json|text] [--limit N]. Without --data and --prompt it reads rows or a text from
/// standard input. Prints the completions; where rows have an answer of their own, also how many are
/// exactly equal to it. Exit code 0, or 2 on bad input.
int run_generate(const std::vector<std::string>& args);

}  // namespace dsj::train
