// The bytes of tensors on devices, counted in the same ledger as the host's: libtorch's allocators of
// devices report every block to the calling thread.
// Tested by: tests/engine/simulated/late_test.cc
#pragma once

#include "engine/memory/counting_allocator.h"

namespace dsj::memory {

/// While it lives, this thread's allocations on devices are counted by the innermost MemoryScope's
/// class and ledger, and the blocks that it frees are given back to where they were counted. A block
/// that is freed on a thread without one stays counted. They nest.
class CountDevice {
 public:
  CountDevice();
  ~CountDevice();
  CountDevice(const CountDevice&) = delete;
  CountDevice& operator=(const CountDevice&) = delete;
};

}  // namespace dsj::memory
