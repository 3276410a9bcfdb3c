// The termination message of a worker's pod (contract.h): what the operator and the user read when
// the pod is gone. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agent/session.h"
#include "agent/worker.h"

namespace dsj::agent {

/// The kubelet keeps so much.
inline constexpr size_t kTerminationBytesMax = 4096;

struct Termination {
  std::string reason, message;
  int64_t step = 0, attempt = 0;
  nlohmann::json failure;  ///< rank, exitCode or signal, lastWords; null: nobody is to blame
};

/// One line of JSON of at most kTerminationBytesMax: last words are cut first, then the message.
std::string to_text(const Termination& termination);

/// How this worker ended. `outcome`, `last_failure` (a "failure" report, or null): of worker 0, who
/// knows the whole job; the others tell of themselves. `ranks`: the numbers of this worker's ranks.
Termination termination_of(const Worker& worker, const std::vector<int>& ranks,
                           const Outcome* outcome, const nlohmann::json& last_failure);
/// Of an agent that never came so far.
Termination termination_of(const Error& error);

}  // namespace dsj::agent
