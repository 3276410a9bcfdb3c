// The NVIDIA driver and how many GPUs it shows to this process, by its own functions: no library of CUDA
// is needed. Ranks ask it (engine/cuda/open.h), and `dsj` before it starts any.
// Tested by: tests/engine/cuda/open_test.cc, tests/cli/check/job_check_test.cc
#pragma once

#include <string>

namespace dsj {

struct CudaDriver {
  void* library = nullptr;  ///< of dlopen; it is never closed
  int devices = 0;
  std::string lacking;  ///< why there are none: "no CUDA driver (libcuda.so.1) is here"
};

/// A machine without a driver costs one failed dlopen.
CudaDriver cuda_driver(const char* file = "libcuda.so.1");

}  // namespace dsj
