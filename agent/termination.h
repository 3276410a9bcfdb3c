// The termination message of a worker's pod (contract.h): what operator and user read when the pod
// is gone. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agent/session.h"
#include "agent/worker.h"

namespace dsj::agent {

/// The kubelet keeps at most this.
inline constexpr size_t kTerminationBytesMax = 4096;

struct Termination {
  std::string reason, message;
  int64_t step = 0, attempt = 0;
  nlohmann::json failure;  ///< rank, exitCode or signal, lastWords; null: nobody is to blame
};

/// One line of JSON of at most kTerminationBytesMax. Last words are cut first, then the message.
std::string to_text(const Termination& termination);

/// How this worker ended. `outcome` and `last_failure` (a "failure" report, or null) come from
/// worker 0, which knows the whole job; other workers tell of themselves. `ranks`: the rank numbers
/// of this worker.
Termination termination_of(const Worker& worker, const std::vector<int>& ranks,
                           const Outcome* outcome, const nlohmann::json& last_failure);
/// For an agent that did not come so far.
Termination termination_of(const Error& error);

}  // namespace dsj::agent
