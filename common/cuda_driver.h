// The NVIDIA driver and the number of GPUs that it shows to this process, by its own functions: no
// CUDA library is needed. Ranks call it (engine/cuda/open.h), and `dsj` before it starts ranks.
// Tested by: tests/engine/cuda/open_test.cc, tests/cli/check/job_check_test.cc
#pragma once

#include <cstdint>
#include <string>

namespace dsj {

/// The engine's half for GPUs (engine/cuda/plugin.h), beside the programs.
inline constexpr char kCudaLibrary[] = "libdsj_cuda.so";

struct CudaDriver {
  void* library = nullptr;  ///< from dlopen; never closed
  int devices = 0;
  int64_t memory = 0;   ///< of the GPU with the least, in bytes; 0 if unknown
  std::string lacking;  ///< why there are none: "no CUDA driver (libcuda.so.1) is here"
};

/// Without a driver it costs one failed dlopen.
CudaDriver cuda_driver(const char* file = "libcuda.so.1");

}  // namespace dsj
