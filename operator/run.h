// The operator's process: reflectors fill the cache, a lease elects the leader, and workers step
// the controller until a signal stops it.
#pragma once

#include "kube/client.h"
#include "operator/options.h"

namespace dsj::op {

/// Blocks until `stop`, then finishes the passes in work, releases the lease and returns.
/// `own_namespace` is the Lease's namespace unless the options set another.
Status run_operator(const Options& options, kube::Transport& transport, kube::Clock& clock,
                    const std::string& own_namespace, const kube::Cancel& stop);

}  // namespace dsj::op
