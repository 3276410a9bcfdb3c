// Records a device's out-of-memory failure: the requested bytes and the class of memory. The class
// is known only where the allocation fails, because its scope ends before the report.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/memory/counting_allocator.h"

namespace dsj::memory {

struct Shortage {
  Class klass = Class::Activations;  ///< of the thread's MemoryScope
  int64_t wanted = 0;                ///< bytes
  int64_t all = 0, left = 0;         ///< the device's bytes: total and free
};

/// Called by a device's allocator on the allocating thread, before it throws.
void note_shortage(int64_t wanted, int64_t all, int64_t left);
/// The last shortage of this process; unset if there was none.
std::optional<Shortage> last_shortage();

}  // namespace dsj::memory
