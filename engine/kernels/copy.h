// Copies data that is not read again soon, such as a snapshot of the state. Torch-free.
// Tested by: tests/engine/kernels/copy_test.cc
#pragma once

#include <cstdint>

namespace dsj::kernels {

/// Copies n elements; the ranges must not overlap. On x86 a long copy bypasses the caches, so that
/// the step's data stays in them and no destination line is read first, which saves a third of the
/// traffic. Any thread.
void copy_past_caches(float* to, const float* from, int64_t n);

}  // namespace dsj::kernels
