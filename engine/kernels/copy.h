// A copy of what nobody reads soon, such as a snapshot of the state. Torch-free.
// Tested by: tests/engine/kernels/copy_test.cc
#pragma once

#include <cstdint>

namespace dsj::kernels {

/// Copies n elements; the ranges do not overlap. On x86 a long copy writes past the caches: they
/// keep what a step works on, and no line is read before it is written, a third of the traffic.
/// Any thread.
void copy_past_caches(float* to, const float* from, int64_t n);

}  // namespace dsj::kernels
