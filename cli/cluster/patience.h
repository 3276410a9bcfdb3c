// For verbs that run for hours: keeps them running while the API server is unavailable for a
// while, because it restarts or is upgraded.
// Tested by: tests/cli/cluster/wait_test.cc, tests/cli/cluster/logs_test.cc, tests/cli/cluster/plot_job_test.cc,
// tests/cli/cluster/get_test.cc
#pragma once

#include <optional>

#include "cli/cluster/session.h"

namespace dsj::cli {

class Patience {
 public:
  /// `verb`: the prefix of messages.
  Patience(const char* verb, kube::Clock& clock) : verb_(verb), clock_(clock) {}

  /// Whether to retry a moment later. False if the error is permanent, or if the server has not
  /// answered for five minutes. Prints the first error of an outage.
  bool lasts(const kube::ApiError& error);
  /// Call it when the server has answered.
  void renew() { since_.reset(); }

 private:
  const char* const verb_;
  kube::Clock& clock_;
  std::optional<kube::Milliseconds> since_;  ///< about the time of the last answer
};

}  // namespace dsj::cli
