// What the init containers of spec.initializers (job/spec/initializers.h) become in a worker's pod. Pure.
// Tested by: tests/operator/fetching_test.cc
#pragma once

#include <vector>

#include "operator/observe/observed.h"

namespace dsj::op {

/// Takes those out of the pod's spec that this worker does not need, because worker 0 fetches to a volume that all
/// see. Gives the others a staging path of their own and /tmp, and keeps the account's token from them. Returns them;
/// they live as long as `spec`'s list of init containers does.
std::vector<Json*> enter_initializers(Json& spec, const jobspec::Job& job, int worker);

}  // namespace dsj::op
