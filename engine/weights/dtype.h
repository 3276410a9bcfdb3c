// Element types of weight files, and the conversions to and from fp32. Little-endian hosts only
// (checked at compile time), as the files are.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dsj::weights {

static_assert(std::endian::native == std::endian::little);

/// The types of safetensors whose elements are whole bytes.
enum class DType {
  Bool,
  U8,
  I8,
  F8E5M2,
  F8E4M3,
  F8E8M0,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  I64,
  U64,
  F64,
  C64
};

/// "F32", "BF16" ...: safetensors' name. nullopt: not one of them.
std::optional<DType> dtype_from_name(std::string_view name);
std::string_view dtype_name(DType dtype);
/// "float32", "bfloat16", "float16": the name in a config.json. Empty for the other types.
std::string_view config_dtype_name(DType dtype);
int64_t dtype_bytes(DType dtype);
/// F32, BF16, F16: what weights may be here.
bool is_weight_dtype(DType dtype);

/// Exact. `in` and `out` have the same number of elements and do not overlap.
void bf16_to_float(std::span<const uint16_t> in, std::span<float> out);
/// Exact, subnormal numbers, infinities and NaN included.
void fp16_to_float(std::span<const uint16_t> in, std::span<float> out);
/// To nearest, ties to even; a NaN stays one (quiet).
void float_to_bf16(std::span<const float> in, std::span<uint16_t> out);
/// To nearest, ties to even, subnormal numbers kept; too large becomes infinity; a NaN stays one.
void float_to_fp16(std::span<const float> in, std::span<uint16_t> out);

}  // namespace dsj::weights
