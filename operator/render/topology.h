// Packs the workers of a job into one topology domain (spec.workers.topology). Pure.
//
// For the cluster's own scheduler, each pod has an affinity to the job's other pods. The first pod
// matches its own term and may go to any domain; the others follow it. So the operator neither
// chooses a domain nor reads nodes. Kueue has its own annotation, and uses the workers' indices to
// place neighbours in one domain.
#pragma once

#include <string>

#include "operator/observe/observed.h"

namespace dsj::op {

/// Adds the fields that keep a pod near the other workers of its job. The template's own affinity
/// is kept. `metadata` has the pod's labels. `gang` is the scheduling group; empty if the cluster's
/// own scheduler places the pod.
void enter_topology(const jobspec::Job& job, const std::string& job_name, int worker,
                    const std::string& gang, Json& metadata, Json& spec);

}  // namespace dsj::op
