// `dsj debug --stacks`: the stacks of all threads of a running job. The agents take them and
// write them to their logs (job/stacks_request.h), so that it needs only the rights of `dsj
// logs` and to edit the job, and runs nothing in a pod.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/cluster/pods.h"

namespace dsj::cli {

/// The answer to a request in a pod's log. Pure.
struct StacksTold {
  std::vector<std::string> lines;
  bool whole = false;  ///< the answer is complete
  void take(const std::string& log_line, int64_t request);
};

/// Requests the stacks, waits up to 20 s for all running workers, and returns the stacks per
/// worker. For a worker that does not answer a line says so.
kube::ApiResult<std::string> take_stacks(Session& session, const Json& job,
                                         const std::vector<PodRef>& pods);

}  // namespace dsj::cli
