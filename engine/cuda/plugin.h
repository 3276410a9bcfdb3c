// libdsj_cuda.so: what dsj-train needs on a machine with NVIDIA GPUs and nowhere else. It holds the
// CUDA kernels, NCCL's communicator and all that names CUDA's own types. dsj-train opens it at run
// time (open.h), so that a start on a CPU loads none of CUDA's libraries: they are 2.6 GB, and cost
// 0.6 s and 350 MB per process.
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

/// What the plugin brings. All live as long as the process.
struct Plugin {
  /// Of the headers that both sides were compiled with (plugin/CMakeLists.txt). First member: it
  /// can be read even when the rest has changed.
  const char* interface;
  /// Makes GPU `device` the calling thread's own, and starts CUDA there. Environment: that fails.
  Status (*use_device)(int device);
  /// Its compute capability, 90 for 9.0. After use_device().
  int (*compute_capability)(int device);
  /// Our kernels, with `rest` below them.
  kernels::Port& (*port)(kernels::Port& rest);
  /// Page-locked host memory of exactly so many bytes; null: there is none.
  void* (*take_pages)(size_t bytes);
  void (*give_pages)(void* memory);
  /// comm/nccl.h's.
  Result<std::unique_ptr<comm::Collectives>> (*make_nccl)(comm::Rendezvous& rendezvous);
};

inline constexpr char kPluginFile[] = "libdsj_cuda.so";
/// Its one exported function: const Plugin* dsj_cuda_plugin(void).
inline constexpr char kPluginEntry[] = "dsj_cuda_plugin";

}  // namespace dsj::cuda
