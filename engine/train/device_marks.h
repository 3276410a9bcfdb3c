// The step clock's marks on a device: events on the current stream. Setting one does not delay the
// step; reading one waits for it.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "engine/observe/step_clock.h"

namespace dsj::train {

/// On a CPU, marks are times of the host clock; on another device, events.
std::unique_ptr<observe::Marks> marks_for(at::Device device);

}  // namespace dsj::train
