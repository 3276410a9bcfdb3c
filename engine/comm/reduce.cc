#include "engine/comm/reduce.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine/kernels/element.h"
#include "engine/kernels/halves.h"

namespace dsj::comm {
namespace {

#define DSJ_INLINE __attribute__((always_inline)) static inline

constexpr std::int64_t kBlock = 1024;  // elements accumulated at a time: stays in the L1 cache

// The loops are written for the compiler's vectoriser (compiled with -O3): `wide` is a separate
// block, and there is no data-dependent branch. Element by element, a bf16 sum would take a tenth
// of a small model's step.
//
// The kernels read and round 16-bit elements; double and int64 are their own accumulators.
using kernels::load;
using kernels::store;
template <typename T>
DSJ_INLINE T load(const T* p, std::int64_t i) {
  return p[i];
}
template <typename T>
DSJ_INLINE void store(T* p, std::int64_t i, T value) {
  p[i] = value;
}

template <Op op, typename T>
DSJ_INLINE T combine(T a, T b) {
  if constexpr (op == Op::Sum) return a + b;
  return (a > b) | (a != a) ? a : b;
}

/// The loops over one block.
template <typename T>
struct Blocks {
  using Element = T;
  using Wide = decltype(load(std::declval<const T*>(), 0));
  DSJ_INLINE void widen(Wide* __restrict wide, const T* source, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) wide[i] = load(source, i);
  }
  template <Op op>
  DSJ_INLINE void add(Wide* __restrict wide, const T* source, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) wide[i] = combine<op>(wide[i], load(source, i));
  }
  DSJ_INLINE void narrow(T* out, const Wide* __restrict wide, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) store(out, i, wide[i]);
  }
};

template <typename Loops, Op op>
DSJ_INLINE void reduce_with(void* out, std::span<const void* const> sources, std::int64_t n) {
  using Element = typename Loops::Element;
  alignas(64) typename Loops::Wide wide[kBlock];
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    const std::int64_t count = std::min(kBlock, n - begin);
    Loops::widen(wide, static_cast<const Element*>(sources[0]) + begin, count);
    for (const void* source : sources.subspan(1)) {
      Loops::template add<op>(wide, static_cast<const Element*>(source) + begin, count);
    }
    Loops::narrow(static_cast<Element*>(out) + begin, wide, count);
  }
}

template <Op op>
DSJ_INLINE void reduce_any(void* out, std::span<const void* const> sources, std::int64_t n,
                           at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return reduce_with<Blocks<float>, op>(out, sources, n);
    case at::kDouble:
      return reduce_with<Blocks<double>, op>(out, sources, n);
    case at::kLong:
      return reduce_with<Blocks<std::int64_t>, op>(out, sources, n);
    case at::kBFloat16:
      return reduce_with<Blocks<kernels::Bf16>, op>(out, sources, n);
    case at::kHalf:
      return reduce_with<Blocks<kernels::Half>, op>(out, sources, n);
    default:
      DSJ_CHECK(false, "reduce of dtype %s", at::toString(dtype));
  }
}

#ifdef DSJ_F16C
/// Not inlined, because the caller is compiled without F16C.
struct HalfBlocks {
  using Element = kernels::Half;
  using Wide = float;
  DSJ_F16C static void widen(float* wide, const Element* source, std::int64_t n) {
    const std::int64_t whole = n - n % kernels::kHalves;
    kernels::widen_halves(source, whole, 1, wide);
    for (std::int64_t i = whole; i < n; ++i) wide[i] = load(source, i);
  }
  template <Op op>
  DSJ_F16C static void add(float* wide, const Element* source, std::int64_t n) {
    alignas(32) float loaded[kBlock];
    widen(loaded, source, n);
    for (std::int64_t i = 0; i < n; ++i) wide[i] = combine<op>(wide[i], loaded[i]);
  }
  DSJ_F16C static void narrow(Element* out, const float* wide, std::int64_t n) {
    const std::int64_t whole = n - n % kernels::kHalves;
    kernels::narrow_halves(wide, whole, out);
    for (std::int64_t i = whole; i < n; ++i) store(out, i, wide[i]);
  }
};

template <Op op>
DSJ_F16C void reduce_avx2(void* out, std::span<const void* const> sources, std::int64_t n,
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
#ifdef DSJ_F16C
  if (has_avx2()) {
    DSJ_CHECK(!sources.empty(), "nothing to reduce");
    return op == Op::Sum ? reduce_avx2<Op::Sum>(out, sources, n, dtype)
                         : reduce_avx2<Op::Max>(out, sources, n, dtype);
  }
#endif
  reduce_portable(out, sources, n, dtype, op);
}

}  // namespace dsj::comm
