// A worker's pod, made from the user's template and what the agent needs (contract.h). Pure.
#pragma once

#include "operator/observe/observed.h"
#include "operator/observe/own_status.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// `gang`: its scheduling group (render_gang.h). `keys`: its set of keys (keys.h).
/// `image`: of the agent; empty: the operator's own choice.
Create render_pod(const Observed& observed, const Accepted& accepted, const OwnStatus& status,
                  int worker, int64_t incarnation, const std::string& gang = {},
                  const std::string& keys = {}, const std::string& image = {});

}  // namespace dsj::op
