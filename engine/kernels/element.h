// Converts elements to fp32 and back with integer arithmetic: the same bits on every instruction
// set. In an unnamed namespace, because each instruction set compiles its own copy.
// Tested by: tests/engine/kernels/kernels_test.cc
#pragma once

#include <bit>
#include <cstdint>

#include "engine/kernels/kernels.h"

namespace dsj::kernels {
namespace {

inline float load(const float* p, int64_t i) {
  return p[i];
}
inline float load(const Bf16* p, int64_t i) {
  return std::bit_cast<float>(static_cast<uint32_t>(p[i].bits) << 16);
}
/// Uses selects and no branches, so that it vectorises. A subnormal half is a multiple of
/// 2^-24.
inline float load(const Half* p, int64_t i) {
  const uint32_t magnitude = p[i].bits & 0x7fffu, sign = (p[i].bits & 0x8000u) << 16;
  const uint32_t shifted = magnitude << 13;
  const uint32_t normal = shifted + (magnitude >= 0x7c00u ? 224u << 23 : 112u << 23);
  const float small = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t bits = magnitude < 0x0400u ? std::bit_cast<uint32_t>(small) : normal;
  return std::bit_cast<float>(sign | bits);
}
/// Rounds to nearest even; NaN stays NaN. Selects by arithmetic, because GCC turns a conditional
/// into a branch when roundings are chained, and the surrounding loop then stays scalar.
inline uint16_t bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t is_nan = -static_cast<uint32_t>((bits & 0x7fffffffu) > 0x7f800000u);
  return static_cast<uint16_t>((rounded & ~is_nan) | (0x7fc0u & is_nan));
}
/// Rounds to nearest even, to infinity from 65520 on; NaN stays NaN. Below 2^-14, adding 0.5, whose
/// last bit is 2^-24, rounds.
inline uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int32_t x = static_cast<int32_t>(bits & 0x7fffffffu);
  const int32_t normal = (x - (112 << 23) + 0xfff + ((x >> 13) & 1)) >> 13;
  const int32_t small = std::bit_cast<int32_t>(std::bit_cast<float>(x) + 0.5f) - 0x3f000000;
  int32_t rounded = x < 0x38800000 ? small : normal;
  rounded = x >= 0x477ff000 ? 0x7c00 : rounded;
  rounded = x > 0x7f800000 ? 0x7e00 : rounded;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | static_cast<uint32_t>(rounded));
}
inline void store(float* p, int64_t i, float value) {
  p[i] = value;
}
inline void store(Bf16* p, int64_t i, float value) {
  p[i].bits = bf16_bits(value);
}
inline void store(Half* p, int64_t i, float value) {
  p[i].bits = half_bits(value);
}
template <typename T>
inline float round_to(float value);
template <>
inline float round_to<float>(float value) {
  return value;
}
template <>
inline float round_to<Bf16>(float value) {
  return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits(value)) << 16);
}

template <>
inline float round_to<Half>(float value) {
  const Half rounded{half_bits(value)};
  return load(&rounded, 0);
}

}  // namespace
}  // namespace dsj::kernels
