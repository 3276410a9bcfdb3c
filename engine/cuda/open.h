// Looks for a driver and its GPUs, and opens libdsj_cuda.so: the machine's side of choice.h.
#pragma once

#include "engine/cuda/choice.h"
#include "engine/cuda/plugin.h"

namespace dsj::cuda {

/// What was found, and the plugin if it is usable.
struct Opened {
  Found found;
  const Plugin* plugin = nullptr;
};

/// Without a driver it costs one failed dlopen. `driver` and `plugin`: file names, for tests; by
/// default the plugin is beside this program. Nothing is ever closed. Call it once per process,
/// before the first tensor on a GPU.
Opened open(const char* driver = "libcuda.so.1", const std::string& plugin = {});

}  // namespace dsj::cuda
