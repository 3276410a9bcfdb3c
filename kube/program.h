// Runs a program on the user's machine and reads its output: the port for credential plugins.
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
  /// The first word is a path if it contains '/', else it is looked up on this process's PATH.
  std::vector<std::string> command;
  /// Added to this process's environment; of duplicates the last wins.
  std::vector<std::pair<std::string, std::string>> environment;
  bool stdin_of_ours = false;  ///< false: /dev/null
};

struct ProgramEnd {
  std::string output;  ///< its stdout so far
  int exit_code = 0;   ///< 128 + N for signal N
};

struct ProgramFailure {
  enum class Kind {
    NotFound,    ///< there is no such program
    NotStarted,  ///< not executable, or out of resources
    Timeout,
    Cancelled,
    TooLong,  ///< it printed more than kProgramOutputMax
  } kind = Kind::NotStarted;
  std::string message;  ///< the system's message; may be empty
};

inline constexpr size_t kProgramOutputMax = 1 << 20;

class Programs {
 public:
  virtual ~Programs() = default;
  /// Blocks until the program has ended. It inherits stderr. After a failure it no longer runs.
  virtual std::expected<ProgramEnd, ProgramFailure> run(const Program& program,
                                                        std::chrono::milliseconds timeout,
                                                        const Cancel& cancel) = 0;
};

/// The programs of this machine. Thread-safe.
Programs& system_programs();

}  // namespace dsj::kube
