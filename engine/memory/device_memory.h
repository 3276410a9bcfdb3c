// Counts the bytes of tensors on devices in the same ledger as the host's: libtorch's device
// allocators report every block to the calling thread.
// Tested by: tests/engine/simulated/late_test.cc
#pragma once

#include "engine/memory/counting_allocator.h"

namespace dsj::memory {

/// While it exists, this thread's device allocations are counted in the innermost MemoryScope's
/// class and ledger, and blocks that it frees are subtracted where they were counted. A block freed
/// on a thread without one stays counted. Can be nested.
class CountDevice {
 public:
  CountDevice();
  ~CountDevice();
  CountDevice(const CountDevice&) = delete;
  CountDevice& operator=(const CountDevice&) = delete;
};

}  // namespace dsj::memory
