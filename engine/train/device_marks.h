// Marks of the step clock on a device: events on the current stream, so that a step that is being
// timed is not held up. Reading one waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "engine/observe/step_clock.h"

namespace dsj::train {

/// Host clock readings on a CPU, else events of the device.
std::unique_ptr<observe::Marks> marks_for(at::Device device);

}  // namespace dsj::train
