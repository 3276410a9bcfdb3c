// The device port with our CUDA kernels. Torch-free: the same port runs on a device and on the
// emulated block.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc, tests/engine/device/port_test.cc
#pragma once

#include <memory>

#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {

/// Operations without a kernel run on `rest`. Both references must outlive the port.
std::unique_ptr<Port> make_cuda_port(Port& rest, Scratch& scratch);

}  // namespace dsj::kernels::cuda
