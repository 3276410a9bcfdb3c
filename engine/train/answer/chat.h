// `dsj-train chat`: a conversation with a model, turn by turn.
// Tested by: tests/run/chat_check.py
#pragma once

#include <string>
#include <vector>

namespace dsj::train {

/// `args`: job/generate_arguments.h. Reads the user's turns from standard input, one per line, and
/// streams each answer. Exit code: 0 at the end of the input or after /exit, 130 after Ctrl-C
/// between answers, 2 on bad input.
int run_chat(const std::vector<std::string>& args);

}  // namespace dsj::train
