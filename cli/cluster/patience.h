// For verbs that run for hours beside a job: an API server that is away for a while, because it restarts or is upgraded,
// does not end them.
// Tested by: tests/cli/cluster/wait_test.cc, tests/cli/cluster/logs_test.cc, tests/cli/cluster/plot_job_test.cc,
// tests/cli/cluster/get_test.cc
#pragma once

#include <optional>

#include "cli/cluster/session.h"

namespace dsj::cli {

class Patience {
 public:
  /// `verb`: names itself in front of what is told.
  Patience(const char* verb, kube::Clock& clock) : verb_(verb), clock_(clock) {}

  /// Whether to ask again, a moment later. False: the error does not pass by itself, or the server has not answered
  /// for five minutes. Tells of the first error of a time without answers.
  bool lasts(const kube::ApiError& error);
  /// The server has answered.
  void renew() { since_.reset(); }

 private:
  const char* const verb_;
  kube::Clock& clock_;
  std::optional<kube::Milliseconds> since_;  ///< the last answer, nearly
};

}  // namespace dsj::cli
