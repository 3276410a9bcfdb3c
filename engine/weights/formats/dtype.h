// Element types of weight files, and conversions to and from fp32. For little-endian hosts only
// (checked at compile time), because the files are little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace dsj::weights {

inline constexpr size_t kDimensionsMax = 16;  ///< of a tensor in a file

static_assert(std::endian::native == std::endian::little);

/// safetensors' types whose elements are whole bytes.
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

/// The type of safetensors' name ("F32", "BF16" ...); nullopt for other names.
std::optional<DType> dtype_from_name(std::string_view name);
std::string_view dtype_name(DType dtype);
/// The name in a config.json: "float32", "bfloat16", "float16"; empty for other types.
std::string_view config_dtype_name(DType dtype);
int64_t dtype_bytes(DType dtype);
/// Whether it is F32, BF16 or F16, the supported types of weights.
bool is_weight_dtype(DType dtype);

/// Exact. `in` and `out` have the same number of elements and do not overlap.
void bf16_to_float(std::span<const uint16_t> in, std::span<float> out);
/// Exact, including subnormal numbers, infinities and NaN.
void fp16_to_float(std::span<const uint16_t> in, std::span<float> out);
/// To nearest, ties to even. NaN stays a (quiet) NaN.
void float_to_bf16(std::span<const float> in, std::span<uint16_t> out);
/// To nearest, ties to even. Subnormal numbers are kept, overflow gives infinity, NaN stays
/// NaN.
void float_to_fp16(std::span<const float> in, std::span<uint16_t> out);

}  // namespace dsj::weights
