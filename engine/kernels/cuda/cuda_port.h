// The device port by our CUDA kernels. Torch-free: the same port runs on a device and on the
// emulated block.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc, tests/engine/device/port_test.cc
#pragma once

#include <memory>

#include "engine/kernels/cuda/launchers.h"

namespace dsj::kernels::cuda {

/// An operation without a kernel of ours runs on `rest`. Both must outlive it.
std::unique_ptr<Port> make_cuda_port(Port& rest, Scratch& scratch);

}  // namespace dsj::kernels::cuda
