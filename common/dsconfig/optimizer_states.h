// What an optimizer keeps per element between updates: for the engine's memory, its checkpoints and
// the memory plan.
#pragma once

#include <string>
#include <vector>

#include "common/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// One fp32 number per element.
struct StateSpec {
  std::string name;    ///< as PyTorch and DeepSpeed call it, and as checkpoints do: "exp_avg"
  double initial = 0;  ///< before the first update
};

/// In the order in which update_span() (engine/zero/update.h) takes them. May be empty (SGD).
std::vector<StateSpec> states_of(const OptimizerConfig& config);

}  // namespace dsj::dsconfig
