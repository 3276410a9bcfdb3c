// Verbs of kubectl and of other programs, for who types one of them after `dsj`.
// Tested by: tests/cli/cluster/other_verbs_test.cc
#pragma once

#include <string>

namespace dsj::cli {

/// What does the work of another program's verb here, as a hint. Empty: the word is none of them.
std::string verb_of_others(const std::string& word);

}  // namespace dsj::cli
