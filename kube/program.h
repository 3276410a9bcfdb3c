// Runs a program of the user's machine and reads what it prints: the port behind credential plugins.
// Tested by: tests/kube/program_test.cc
#pragma once

#include <chrono>
#include <expected>
#include <string>
#include <utility>
#include <vector>

#include "kube/http.h"

namespace dsj::kube {

struct Program {
  /// The first word is a path if it has a '/', else it is looked up on this process's PATH.
  std::vector<std::string> command;
  /// Added to this process's environment; a later one wins.
  std::vector<std::pair<std::string, std::string>> environment;
  bool stdin_of_ours = false;  ///< else /dev/null
};

struct ProgramEnd {
  std::string output;  ///< its stdout, as far as it went
  int exit_code = 0;   ///< of a signal N: 128 + N
};

struct ProgramFailure {
  enum class Kind {
    NotFound,    ///< there is no such program
    NotStarted,  ///< it may not be run, or there are no resources
    Timeout,
    Cancelled,
    TooLong,  ///< it printed more than kProgramOutputMax
  } kind = Kind::NotStarted;
  std::string message;  ///< the system's words; may be empty
};

inline constexpr size_t kProgramOutputMax = 1 << 20;

class Programs {
 public:
  virtual ~Programs() = default;
  /// Blocks until the program has ended. Its stderr is ours. After a failure it does not run any more.
  virtual std::expected<ProgramEnd, ProgramFailure> run(const Program& program,
                                                        std::chrono::milliseconds timeout,
                                                        const Cancel& cancel) = 0;
};

/// The programs of this machine. Thread-safe.
Programs& system_programs();

}  // namespace dsj::kube
