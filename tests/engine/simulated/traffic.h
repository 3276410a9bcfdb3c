// Counts the bytes of device memory that our kernels read and write, by the shapes that they are
// called with: every operand once for each pass that the kernels' text makes over it.
#pragma once

#include <memory>

#include "engine/kernels/port.h"

namespace dsj::simulated {

/// A port that runs everything on `rest`, and adds to `bytes`. Both outlive it. Results of one number
/// and LAMB's first pass are left out.
std::unique_ptr<kernels::Port> counting_port(kernels::Port& rest, int64_t& bytes);

}  // namespace dsj::simulated
