// The step clock's marks on a device: events on the current stream. Setting one does not hold up
// the step; reading one waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "engine/observe/step_clock.h"

namespace dsj::train {

/// On a CPU: readings of the host clock. Else: events of the device.
std::unique_ptr<observe::Marks> marks_for(at::Device device);

}  // namespace dsj::train
