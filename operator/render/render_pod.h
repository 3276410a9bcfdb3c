// A worker's pod: the user's template plus what the agent needs (contract.h). Pure.
#pragma once

#include "operator/observe/observed.h"
#include "operator/observe/own_status.h"
#include "operator/render/keys.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// `gang` is its scheduling group (render_gang.h).
Create render_pod(const Observed& observed, const Accepted& accepted, const OwnStatus& status,
                  int worker, int64_t incarnation, const std::string& gang = {},
                  const RunKey& key = {});

}  // namespace dsj::op
