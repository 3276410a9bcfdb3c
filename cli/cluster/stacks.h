// What `dsj debug --stacks` adds: where every thread of a running job is. The agents take the stacks and
// write them to their logs (job/stacks_request.h), so that this needs no more rights than `dsj logs` and an
// edit of the job, and nothing that runs in a pod.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cluster/pods.h"

namespace dsj::cli {

/// What a pod's log tells of a request. Pure.
struct StacksTold {
  std::vector<std::string> lines;
  bool whole = false;  ///< nothing follows
  void take(const std::string& log_line, int64_t request);
};

/// Asks for the stacks, waits for all running workers' answers for at most 20 s, and returns them worker by
/// worker. A worker that does not answer has a line that says so.
kube::ApiResult<std::string> take_stacks(Session& session, const Json& job,
                                         const std::vector<PodRef>& pods);

}  // namespace dsj::cli
