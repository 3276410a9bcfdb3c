#include "engine/comm/reduce.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <bit>

#include "common/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define DSJ_X86 1
#endif

namespace dsj::comm {
namespace {

#define DSJ_INLINE __attribute__((always_inline)) static inline

constexpr std::int64_t kBlock = 1024;  // elements accumulated at a time: stays in the L1 cache

// Loops are written for the compiler's vectoriser (the file is compiled with -O3): `wide` is a
// block of its own, and no choice depends on the data. One element at a time, a sum in bf16 would
// take as long as a tenth of a small model's step.

/// A type that is its own accumulator.
template <typename T>
struct Plain {
  using Element = T;
  using Wide = T;
  DSJ_INLINE T widen(T x) { return x; }
  DSJ_INLINE T narrow(T x) { return x; }
};

struct BFloat16 {
  using Element = std::uint16_t;
  using Wide = float;
  DSJ_INLINE float widen(std::uint16_t x) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(x) << 16);
  }
  DSJ_INLINE std::uint16_t narrow(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const std::uint32_t is_nan = -static_cast<std::uint32_t>((bits & 0x7fffffff) > 0x7f800000);
    return static_cast<std::uint16_t>((rounded & ~is_nan) | (0x7fc0 & is_nan));
  }
};

struct Half {
  using Element = std::uint16_t;
  using Wide = float;
  DSJ_INLINE float widen(std::uint16_t x) { return c10::detail::fp16_ieee_to_fp32_value(x); }
  DSJ_INLINE std::uint16_t narrow(float x) { return c10::detail::fp16_ieee_from_fp32_value(x); }
};

template <Op op, typename T>
DSJ_INLINE T combine(T a, T b) {
  if constexpr (op == Op::Sum) return a + b;
  return (a > b) | (a != a) ? a : b;
}

/// The loops over one block; Traits converts one element, Block (below) whole blocks.
template <typename Traits>
struct Blocks {
  using Element = typename Traits::Element;
  using Wide = typename Traits::Wide;
  DSJ_INLINE void load(Wide* __restrict wide, const Element* source, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) wide[i] = Traits::widen(source[i]);
  }
  template <Op op>
  DSJ_INLINE void add(Wide* __restrict wide, const Element* source, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      wide[i] = combine<op>(wide[i], static_cast<Wide>(Traits::widen(source[i])));
    }
  }
  DSJ_INLINE void store(Element* out, const Wide* __restrict wide, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) out[i] = Traits::narrow(wide[i]);
  }
};

template <typename Loops, Op op>
DSJ_INLINE void reduce_with(void* out, std::span<const void* const> sources, std::int64_t n) {
  using Element = typename Loops::Element;
  alignas(64) typename Loops::Wide wide[kBlock];
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    Loops::load(wide, static_cast<const Element*>(sources[0]) + begin, count);
    for (const void* source : sources.subspan(1)) {
      Loops::template add<op>(wide, static_cast<const Element*>(source) + begin, count);
    }
    Loops::store(static_cast<Element*>(out) + begin, wide, count);
  }
}

template <Op op>
DSJ_INLINE void reduce_any(void* out, std::span<const void* const> sources, std::int64_t n,
                           at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return reduce_with<Blocks<Plain<float>>, op>(out, sources, n);
    case at::kDouble:
      return reduce_with<Blocks<Plain<double>>, op>(out, sources, n);
    case at::kLong:
      return reduce_with<Blocks<Plain<std::int64_t>>, op>(out, sources, n);
    case at::kBFloat16:
      return reduce_with<Blocks<BFloat16>, op>(out, sources, n);
    case at::kHalf:
      return reduce_with<Blocks<Half>, op>(out, sources, n);
    default:
      DSJ_CHECK(false, "reduce of dtype %s", at::toString(dtype));
  }
}

#ifdef DSJ_X86
#define DSJ_AVX2 __attribute__((target("avx2,f16c")))

/// Half by F16C instructions, 8 at a time. Not inlined: the caller is compiled without F16C.
struct HalfBlocks {
  using Element = std::uint16_t;
  using Wide = float;
  DSJ_AVX2 static void load(float* wide, const std::uint16_t* source, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
      _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(half));
    }
    for (; i < n; ++i) wide[i] = Half::widen(source[i]);
  }
  template <Op op>
  DSJ_AVX2 static void add(float* wide, const std::uint16_t* source, std::int64_t n) {
    alignas(32) float loaded[kBlock];
    load(loaded, source, n);
    for (std::int64_t i = 0; i < n; ++i) wide[i] = combine<op>(wide[i], loaded[i]);
  }
  DSJ_AVX2 static void store(std::uint16_t* out, const float* wide, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      const __m128i half =
          _mm256_cvtps_ph(_mm256_loadu_ps(wide + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), half);
    }
    for (; i < n; ++i) out[i] = Half::narrow(wide[i]);
  }
};

template <Op op>
DSJ_AVX2 void reduce_avx2(void* out, std::span<const void* const> sources, std::int64_t n,
                          at::ScalarType dtype) {
  if (dtype == at::kHalf) return reduce_with<HalfBlocks, op>(out, sources, n);
  reduce_any<op>(out, sources, n, dtype);
}

bool has_avx2() {
  static const bool found = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return found;
}
#endif

}  // namespace

void reduce_portable(void* out, std::span<const void* const> sources, std::int64_t n,
                     at::ScalarType dtype, Op op) {
  DSJ_CHECK(!sources.empty(), "nothing to reduce");
  op == Op::Sum ? reduce_any<Op::Sum>(out, sources, n, dtype)
                : reduce_any<Op::Max>(out, sources, n, dtype);
}

void reduce(void* out, std::span<const void* const> sources, std::int64_t n, at::ScalarType dtype,
            Op op) {
#ifdef DSJ_X86
  if (has_avx2()) {
    DSJ_CHECK(!sources.empty(), "nothing to reduce");
    return op == Op::Sum ? reduce_avx2<Op::Sum>(out, sources, n, dtype)
                         : reduce_avx2<Op::Max>(out, sources, n, dtype);
  }
#endif
  reduce_portable(out, sources, n, dtype, op);
}

}  // namespace dsj::comm
