// The GPU's kernels as a port for tensors of the host, for tests/engine/device/port_test.cc: each
// call copies its operands to the GPU, runs there, waits, and copies them back.
#pragma once

#include "engine/kernels/port.h"

namespace dsj::gpu {

/// Only where gpu() has a place.
kernels::Port& hosted_port();

}  // namespace dsj::gpu
