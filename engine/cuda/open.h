// Looks for a driver and its GPUs, and opens libdsj_cuda.so. The port of choice.h to the machine.
#pragma once

#include "engine/cuda/choice.h"
#include "engine/cuda/plugin.h"

namespace dsj::cuda {

/// What was found, and the plugin if it can be used.
struct Opened {
  Found found;
  const Plugin* plugin = nullptr;
};

/// A machine without a driver costs one failed dlopen. With `driver` and `plugin` as file names:
/// for tests. The plugin lies beside this program. Nothing is ever closed. Once per process, before
/// the first tensor on a GPU.
Opened open(const char* driver = "libcuda.so.1", const std::string& plugin = {});

}  // namespace dsj::cuda
