// World size 1: outputs are copies of inputs, made before the call returns.
#pragma once

#include <memory>

#include "engine/comm/collectives.h"

namespace dsj::comm {

/// Never fails. Can be split: into itself, or nothing.
std::unique_ptr<Collectives> make_single(at::Device device);

}  // namespace dsj::comm
