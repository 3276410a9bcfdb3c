// The operator as a process: reflectors fill the cache, a lease decides who leads, workers step the
// controller, until a signal asks it to stop.
#pragma once

#include "kube/client.h"
#include "operator/options.h"

namespace dsj::op {

/// Blocks until `stop`. Then finishes the passes in work, releases the lease and returns.
/// `own_namespace`: where the Lease lies unless the options name another namespace.
Status run_operator(const Options& options, kube::Transport& transport, kube::Clock& clock,
                    const std::string& own_namespace, const kube::Cancel& stop);

}  // namespace dsj::op
