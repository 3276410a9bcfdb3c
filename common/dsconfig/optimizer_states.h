// What an optimizer keeps per element between updates. The engine's memory, its checkpoints and the
// memory plan read it.
#pragma once

#include <string>
#include <vector>

#include "common/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// One fp32 number per element.
struct StateSpec {
  std::string name;    ///< PyTorch's and DeepSpeed's name, also in checkpoints
  double initial = 0;  ///< before the first update
};

/// In the order in which update_span() (engine/zero/update.h) takes them. Empty for plain SGD.
std::vector<StateSpec> states_of(const OptimizerConfig& config);

}  // namespace dsj::dsconfig
