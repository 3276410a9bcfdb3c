// The run-time library of -fsanitize=thread, for kernels' files: each access goes to the memory
// watch.
#include <cstddef>
#include <cstdint>

#include "tests/engine/kernels/emulated/watch.h"

using dsj::emulated::touched;

extern "C" {
#define DSJ_CALLBACK(bytes)                                 \
  void __tsan_read##bytes(void* at) {                       \
    touched(reinterpret_cast<uintptr_t>(at), bytes, false); \
  }                                                         \
  void __tsan_write##bytes(void* at) {                      \
    touched(reinterpret_cast<uintptr_t>(at), bytes, true);  \
  }                                                         \
  void __tsan_unaligned_read##bytes(void* at) {             \
    touched(reinterpret_cast<uintptr_t>(at), bytes, false); \
  }                                                         \
  void __tsan_unaligned_write##bytes(void* at) {            \
    touched(reinterpret_cast<uintptr_t>(at), bytes, true);  \
  }
DSJ_CALLBACK(1)
DSJ_CALLBACK(2)
DSJ_CALLBACK(4)
DSJ_CALLBACK(8)
DSJ_CALLBACK(16)
void __tsan_read_range(void* at, std::size_t bytes) {
  touched(reinterpret_cast<uintptr_t>(at), bytes, false);
}
void __tsan_write_range(void* at, std::size_t bytes) {
  touched(reinterpret_cast<uintptr_t>(at), bytes, true);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
}
