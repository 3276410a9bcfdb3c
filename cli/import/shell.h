// Parses the commands of a launch script without running them: words, quotes, line continuations,
// comments, plain variables (NAME=value, export NAME=value, arrays), $NAME, ${NAME},
// ${NAME:-default}, $((...)) and $(expr ...) of known integers, the text that eval, bash -c and sh
// -c run, and `pwd`, $(dirname "$0") and the like as relative paths. Values that only a run
// determines ($(...), $1) are kept as written and reported. Commands inside if, loops and functions
// are listed separately; a variable that is set there keeps its earlier value and is reported.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobimport {

struct Command {
  int line = 0;                    ///< 1-based line of its first word
  std::vector<std::string> words;  ///< known variables are replaced
  /// Variables set before the command word, or exported earlier with a known value.
  std::map<std::string, std::string> environment;
};

struct Script {
  std::vector<Command> commands;     ///< in order, without leading assignments
  std::vector<Command> conditional;  ///< inside if, loops and functions; may not run
  std::vector<std::string> notes;    ///< "line 3: $GPUS is not known here"
};

/// `variables`: known before line 1. Errors: a quote is not closed, or more than 1 MiB.
Result<Script> read_script(const std::string& text, const std::string& source,
                           std::map<std::string, std::string> variables = {});

}  // namespace dsj::jobimport
