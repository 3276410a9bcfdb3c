// Completes the init containers of spec.initializers (job/spec/initializers.h) in a worker's pod.
// Pure.
// Tested by: tests/operator/fetching_test.cc
#pragma once

#include <vector>

#include "operator/observe/observed.h"

namespace dsj::op {

/// Removes initializers that this worker does not need because worker 0 fetches to a volume that
/// all workers mount. Gives the others a staging path and /tmp, and hides the account's token from
/// them. Returns them; the pointers are valid as long as `spec`'s list of init containers.
std::vector<Json*> enter_initializers(Json& spec, const jobspec::Job& job, int worker);

}  // namespace dsj::op
