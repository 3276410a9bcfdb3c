// The termination message of a worker in a pod (job/report/termination_message.h). Pure.
#pragma once

#include <optional>
#include <vector>

#include "agent/gang/session.h"
#include "agent/gang/worker.h"
#include "job/report/reports.h"
#include "job/report/termination_message.h"

namespace dsj::agent {

/// `outcome` and `last_failure` come from worker 0, which knows the whole job; other workers
/// describe only themselves. `ranks` has the rank numbers of this worker.
report::TerminationMessage termination_of(const Worker& worker, const std::vector<int>& ranks,
                                          const Outcome* outcome,
                                          const std::optional<report::Failure>& last_failure);
/// For an agent that failed before it had a worker.
report::TerminationMessage termination_of(const Error& error);

}  // namespace dsj::agent
