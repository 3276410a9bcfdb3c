// Waits for a condition of a job: polls each second, prints a line per change of its state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/cluster/json_path.h"
#include "cli/cluster/session.h"

namespace dsj::cli {

/// Ends the wait. If not reached, the message says why the condition can no longer hold.
struct Answer {
  bool reached = true;
  std::string message, hint;
};
/// The answer for a job that is Failed or Refused, which is final; nullopt for other jobs.
std::optional<Answer> given_up(const std::string& name, const Json& job);
using Judge = std::function<std::optional<Answer>(const Json& job)>;

struct Wait {
  const char* verb;
  std::string name;                           ///< the job's name
  std::string uid;                            ///< another job with that name ends the wait
  std::optional<kube::Milliseconds> timeout;  ///< unset means forever
  bool progress = false;                      ///< print state changes, and the step every 30 s
};

/// Whether the operator's status refers to the current spec.
bool status_is_current(const Json& job);

/// Judges a job only while its status is current. Returns the exit code: 0 if reached (prints
/// "NAME is STATE"), 1 if it can no longer be reached or not in time, 130 if interrupted, else
/// that of the failed request. An API server that does not answer is retried (patience.h).
int wait_for_job(Session& session, const Wait& wait, const Judge& judge);

}  // namespace dsj::cli
