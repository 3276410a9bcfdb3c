// The commands of a launch script, read and never run: words, quotes, line continuations, comments,
// plain variables (NAME=value, export NAME=value, arrays), $NAME, ${NAME}, ${NAME:-default}, $((...)) and
// $(expr ...) of known whole numbers, and the text that eval, bash -c and sh -c run;
// `pwd`, $(dirname "$0") and the like as relative paths. What is decided when a script
// runs ($(...), $1) is left as written and named. Commands inside if, loops and functions are listed
// apart; a variable that is set there keeps its value from before, and is named.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::jobimport {

struct Command {
  int line = 0;                    ///< 1-based, of its first word
  std::vector<std::string> words;  ///< variables replaced where they are known
  /// Set in front of the command, or exported before it and known.
  std::map<std::string, std::string> environment;
};

struct Script {
  std::vector<Command> commands;     ///< in order, assignments in front of a command taken off
  std::vector<Command> conditional;  ///< of if, loops and functions: a run decides about them
  std::vector<std::string> notes;    ///< "line 3: $GPUS is not known here"
};

/// Errors: a quote that is not closed, more than 1 MiB. `variables` are known before line 1.
Result<Script> read_script(const std::string& text, const std::string& source,
                           std::map<std::string, std::string> variables = {});

}  // namespace dsj::jobimport
