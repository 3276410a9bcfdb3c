// Packs the workers of a job into one domain of nodes (spec.workers.topology). Pure.
//
// The cluster's own scheduler is asked by an affinity to the job's other pods. The first pod matches
// its own term, so it may go to any domain, and the others follow it: no pod is told a domain, and no
// node is read. Kueue is asked by its own annotation; by the workers' numbers it keeps neighbours in
// one domain.
#pragma once

#include <string>

#include "operator/observe/observed.h"

namespace dsj::op {

/// Adds to a pod what keeps it near the other workers of its job. What the template says of affinity
/// stays. `metadata` has the pod's labels. `gang`: its scheduling group; empty: the cluster's own
/// scheduler places it.
void enter_topology(const jobspec::Job& job, const std::string& job_name, int worker,
                    const std::string& gang, Json& metadata, Json& spec);

}  // namespace dsj::op
