// `dsj-train generate`: answers questions.
#pragma once

#include <string>
#include <vector>

namespace dsj::train {

/// `args`: job/generate_arguments.h. Without --data and --prompt it reads rows or a text from
/// standard input. Prints the completions and, if rows have an answer, how many completions equal
/// it exactly. Exit code: 0, or 2 on bad input.
int run_generate(const std::vector<std::string>& args);

}  // namespace dsj::train
