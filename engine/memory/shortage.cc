#include "engine/memory/shortage.h"

#include <mutex>

namespace dsj::memory {
namespace {

std::mutex mutex;
std::optional<Shortage> last;

}  // namespace

void note_shortage(int64_t wanted, int64_t all, int64_t left) {
  const std::lock_guard lock(mutex);
  last = Shortage{current_class(), wanted, all, left};
}

std::optional<Shortage> last_shortage() {
  const std::lock_guard lock(mutex);
  return last;
}

}  // namespace dsj::memory
