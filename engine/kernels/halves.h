// Converts eight halves at a time with F16C, with the same bits as element.h. x86-64 only. In an
// unnamed namespace, as element.h.
// Tested by: tests/engine/kernels/kernels_test.cc, tests/engine/comm/reduce_test.cc
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "engine/kernels/kernels.h"

// A file compiled without F16C may call these from functions with this attribute, if the CPU has
// F16C; they are inlined there.
#ifdef __F16C__
#define DSJ_F16C
#else
#define DSJ_F16C __attribute__((target("avx2,f16c")))
#endif

namespace dsj::kernels {
namespace {

inline constexpr int64_t kHalves = 8;

/// wide[0..n) = from[0..n) * scale. n is a multiple of kHalves.
DSJ_F16C __attribute__((always_inline)) inline void widen_halves(const Half* from, int64_t n,
                                                                 float scale, float* wide) {
  for (int64_t i = 0; i < n; i += kHalves) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(wide + i, _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(scale)));
  }
}
/// to[0..n) = wide[0..n), rounded. n is a multiple of kHalves.
DSJ_F16C __attribute__((always_inline)) inline void narrow_halves(const float* wide, int64_t n,
                                                                  Half* to) {
  for (int64_t i = 0; i < n; i += kHalves) {
    const __m256 x = _mm256_loadu_ps(wide + i);
    // A NaN keeps only its sign, as in half_bits().
    const __m256 nan = _mm256_or_ps(_mm256_and_ps(x, _mm256_set1_ps(-0.0f)),
                                    _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
    const __m256 plain = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm256_cvtps_ph(plain, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
}

}  // namespace
}  // namespace dsj::kernels
#endif
