// The device port by our CUDA kernels. Torch-free: the same port runs on a device and on the
// emulated block.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc, tests/engine/device/port_test.cc
#pragma once

#include <cstddef>
#include <memory>

#include "engine/kernels/port.h"

namespace dsj::kernels::cuda {

/// Memory of a device for the length of one call. Any thread.
class Scratch {
 public:
  virtual ~Scratch() = default;
  /// At least `bytes`, aligned to 16, for work of this stream alone.
  virtual void* take(Stream stream, size_t bytes) = 0;
  /// Given back when the work has been queued: the stream's own order keeps later users away.
  virtual void give(Stream stream, void* memory) = 0;
};

/// An operation without a kernel of ours runs on `rest`. Both must outlive it.
std::unique_ptr<Port> make_cuda_port(Port& rest, Scratch& scratch);

}  // namespace dsj::kernels::cuda
