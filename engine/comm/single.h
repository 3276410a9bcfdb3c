// World size 1: outputs are copies of inputs, made before the call returns.
#pragma once

#include <memory>

#include "engine/comm/collectives.h"

namespace dsj::comm {

/// Never fails. A split returns a group of this rank or null.
std::unique_ptr<Collectives> make_single(at::Device device);

}  // namespace dsj::comm
