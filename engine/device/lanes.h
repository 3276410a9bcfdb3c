// The lanes (streams.h) of this process's devices.
// Tested by: tests/engine/device/streams_test.cc, tests/engine/simulated/late_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include "engine/device/streams.h"

namespace dsj::device {

/// The lanes of a device. They live as long as the process.
Streams& streams(at::Device place);

}  // namespace dsj::device
