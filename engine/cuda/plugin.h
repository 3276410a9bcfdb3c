// libdsj_cuda.so: the part of dsj-train that only machines with NVIDIA GPUs need: the CUDA kernels,
// NCCL's communicator and all code that uses CUDA's types. dsj-train opens it at run time (open.h),
// so that a start on a CPU loads none of CUDA's libraries, which are 2.6 GB and cost 0.6 s and 350
// MB per process.
// Tested by: tests/run/cuda_check.py
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/result.h"
#include "engine/kernels/port.h"

namespace dsj::comm {
class Collectives;
class Rendezvous;
}  // namespace dsj::comm

namespace dsj::cuda {

/// The plugin's interface. Everything lives as long as the process.
struct Plugin {
  /// The version of the headers that both sides were compiled with (plugin/CMakeLists.txt). First
  /// member, so that it can be read even if the rest has changed.
  const char* interface;
  /// Makes GPU `device` current on the calling thread and starts CUDA. Environment: that fails.
  Status (*use_device)(int device);
  /// Its compute capability, 90 for 9.0. Call it after use_device().
  int (*compute_capability)(int device);
  /// Our kernels; `rest` runs the other operations.
  kernels::Port& (*port)(kernels::Port& rest);
  /// Page-locked host memory of exactly `bytes`; null if there is none.
  void* (*take_pages)(size_t bytes);
  void (*give_pages)(void* memory);
  /// comm/nccl.h's.
  Result<std::unique_ptr<comm::Collectives>> (*make_nccl)(comm::Rendezvous& rendezvous);
};

/// Its one exported function: const Plugin* dsj_cuda_plugin(void).
inline constexpr char kPluginEntry[] = "dsj_cuda_plugin";

}  // namespace dsj::cuda
