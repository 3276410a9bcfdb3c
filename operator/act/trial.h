// Asks the API server whether it would take a job's pods, before anything is made or replaced: worker 0's pod is created by a
// dry run. So whatever this server's version knows may be in a template, and what it does not know is refused.
#pragma once

#include <string>

#include "kube/client.h"
#include "operator/observe/acceptance.h"
#include "operator/observe/observed.h"

namespace dsj::op {

/// The server's own sentence, where it refuses the pod whatever the time: an unknown field, a value that it does not take.
/// Empty: it would take the pod, or does not say now (a quota, another webhook, no answer), and creating the pod tells.
std::string refusal_of_pod(kube::Client& client, const JobView& job, const Settings& settings,
                           const Accepted& accepted);

}  // namespace dsj::op
