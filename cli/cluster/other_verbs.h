// Recognizes verbs of kubectl and other programs that a user types after `dsj`.
// Tested by: tests/cli/cluster/other_verbs_test.cc
#pragma once

#include <string>

namespace dsj::cli {

/// A hint with the equivalent of another program's verb; empty for other words.
std::string verb_of_others(const std::string& word);

}  // namespace dsj::cli
