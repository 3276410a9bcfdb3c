#include "engine/kernels/copy.h"

#include <cstdint>
#include <cstring>

#ifdef DSJ_KERNELS_X86
#include <immintrin.h>
#endif

namespace dsj::kernels {
namespace {

void copy_through_caches(float* to, const float* from, int64_t n) {
  if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace

#ifdef DSJ_KERNELS_X86

// Only SSE: every x86-64 CPU has it, and wider stores produce the same cache-line writes.
void copy_past_caches(float* to, const float* from, int64_t n) {
  constexpr int64_t kLine = 16, kShort = 4096;  // elements
  if (n < kShort) return copy_through_caches(to, from, n);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) / sizeof(float)) % kLine;
  const int64_t head = past == 0 ? 0 : kLine - past;
  copy_through_caches(to, from, head);
  const int64_t end = head + (n - head) / kLine * kLine;
  for (int64_t i = head; i < end; i += kLine) {
    const __m128 a = _mm_loadu_ps(from + i), b = _mm_loadu_ps(from + i + 4);
    const __m128 c = _mm_loadu_ps(from + i + 8), d = _mm_loadu_ps(from + i + 12);
    _mm_stream_ps(to + i, a);
    _mm_stream_ps(to + i + 4, b);
    _mm_stream_ps(to + i + 8, c);
    _mm_stream_ps(to + i + 12, d);
  }
  _mm_sfence();  // orders the copy before a later notification of another thread
  copy_through_caches(to + end, from + end, n - end);
}

#else

void copy_past_caches(float* to, const float* from, int64_t n) {
  copy_through_caches(to, from, n);
}

#endif

}  // namespace dsj::kernels
