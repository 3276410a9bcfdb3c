// Waits for a job to become what a verb asks for: a look each second, a line per change of its state.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "cli/cluster/json_path.h"
#include "cli/cluster/session.h"

namespace dsj::cli {

/// An answer ends the wait. A message: the job never becomes that, with what to do.
struct Answer {
  bool reached = true;
  std::string message, hint;
};
/// Why a job that has Failed or is Refused becomes nothing else; nullopt: it is neither.
std::optional<Answer> given_up(const std::string& name, const Json& job);
using Judge = std::function<std::optional<Answer>(const Json& job)>;

struct Wait {
  const char* verb;
  std::string name;                           ///< the job's
  std::string uid;                            ///< another job by that name ends the wait
  std::optional<kube::Milliseconds> timeout;  ///< unset: for ever
  bool progress = false;  ///< prints the state when it changes, and the step each half minute
};

/// Whether the operator's status is about the spec as it is now.
bool status_is_current(const Json& job);

/// Judges only a job whose status is current. Returns the exit code: 0 reached (prints "NAME is
/// STATE"), 1 never or not in time, 130 interrupted, else that of the failed request. An API server that does not
/// answer is waited for (patience.h).
int wait_for_job(Session& session, const Wait& wait, const Judge& judge);

}  // namespace dsj::cli
