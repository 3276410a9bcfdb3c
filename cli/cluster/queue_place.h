// Where a job waits: its place in Kueue's queue, or what Volcano says of its PodGroup.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/pods.h"

namespace dsj::cli {

/// One line for people; empty: the job asks for no queue, or its pods are through. What the caller may not read, or a
/// cluster does not serve, is said in it.
std::string queue_place(Session& session, const Json& job, const std::vector<PodRef>& pods);

}  // namespace dsj::cli
