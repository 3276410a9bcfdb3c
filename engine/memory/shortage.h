// A device that has no memory left: what was asked for, and by which class of memory. When the
// exception arrives where it is reported, the scope that knows the class has ended; so it is noted
// when it happens.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/memory/counting_allocator.h"

namespace dsj::memory {

struct Shortage {
  Class klass = Class::Activations;  ///< of the MemoryScope that the thread was in
  int64_t wanted = 0;                ///< bytes
  int64_t all = 0, left = 0;         ///< bytes of the device, in all and free
};

/// A device's allocator calls it on the thread that asked, before it throws.
void note_shortage(int64_t wanted, int64_t all, int64_t left);
/// The last one of this process; unset: there was none.
std::optional<Shortage> last_shortage();

}  // namespace dsj::memory
