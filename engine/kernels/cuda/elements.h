// Elements of the three types on a device: packs of 16 bytes, fp32 arithmetic, and the rounding of
// the CPU's kernels.
#pragma once

#include "engine/kernels/cuda/gpu.h"
#include "engine/kernels/kernels.h"
#ifndef __CUDACC__
#include "engine/kernels/element.h"
#endif

namespace dsj::kernels::cuda {

#ifdef __CUDACC__
__device__ __forceinline__ float value_of(float x) {
  return x;
}
__device__ __forceinline__ float value_of(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ __forceinline__ float value_of(Half x) {
  return __half2float(__ushort_as_half(x.bits));
}
template <typename T>
__device__ __forceinline__ T rounded(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(x))};
  } else {
    return Half{__half_as_ushort(__float2half_rn(x))};
  }
}
#else
template <typename T>
inline float value_of(T x) {
  return load(&x, 0);
}
template <typename T>
inline T rounded(float x) {
  T element;
  store(&element, 0, x);
  return element;
}
#endif

/// x rounded to T.
template <typename T>
__device__ __forceinline__ float round_as(float x) {
  return value_of(rounded<T>(x));
}

/// N adjacent elements, read and written at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

template <int N, typename T>
__device__ __forceinline__ Pack<T, N> read(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, typename T>
__device__ __forceinline__ void write(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// The number of elements in 16 bytes.
template <typename T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

/// Whether every row of these is aligned to 16 bytes and consists of whole packs.
template <typename... Rest>
bool packs(const Rows& rows, const Rest&... rest) {
  const int64_t size = rows.type == Type::F32 ? 4 : 2;
  const bool good = rows.width * size % 16 == 0 &&
                    (rows.rows <= 1 || rows.stride * size % 16 == 0) &&
                    reinterpret_cast<uintptr_t>(rows.data) % 16 == 0;
  if constexpr (sizeof...(rest) > 0) return good && packs(rest...);
  return good;
}

/// Calls f with a null pointer that carries the element type.
template <typename F>
void with_type(Type type, F f) {
  switch (type) {
    case Type::F32:
      return f(static_cast<float*>(nullptr));
    case Type::BF16:
      return f(static_cast<Bf16*>(nullptr));
    case Type::F16:
      return f(static_cast<Half*>(nullptr));
  }
}

/// The same, with the elements per pack, 1 if packs do not fit: f(type, integral_constant<int, N>).
template <typename F>
void with_pack(Type type, bool packs, F f) {
  with_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    if (packs) return f(element, std::integral_constant<int, kPack<T>>());
    f(element, std::integral_constant<int, 1>());
  });
}

template <typename T>
T* data_of(const Rows& rows) {
  return static_cast<T*>(rows.data);
}

/// Threads of a block that processes `count` packs: one round if 512 threads suffice.
inline int threads_for(int64_t count) {
  const int64_t whole = (count + 31) / 32 * 32;
  return static_cast<int>(whole < 32 ? 32 : whole > 512 ? 512 : whole);
}

}  // namespace dsj::kernels::cuda
