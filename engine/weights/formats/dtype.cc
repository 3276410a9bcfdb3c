#include "engine/weights/formats/dtype.h"

#include <array>

#include "common/check.h"

namespace dsj::weights {
namespace {

struct Row {
  DType dtype;
  std::string_view name, config_name;
  int64_t bytes;
};

constexpr std::array<Row, 17> kRows = {{
    {DType::Bool, "BOOL", "", 1},
    {DType::U8, "U8", "", 1},
    {DType::I8, "I8", "", 1},
    {DType::F8E5M2, "F8_E5M2", "", 1},
    {DType::F8E4M3, "F8_E4M3", "", 1},
    {DType::F8E8M0, "F8_E8M0", "", 1},
    {DType::I16, "I16", "", 2},
    {DType::U16, "U16", "", 2},
    {DType::F16, "F16", "float16", 2},
    {DType::BF16, "BF16", "bfloat16", 2},
    {DType::I32, "I32", "", 4},
    {DType::U32, "U32", "", 4},
    {DType::F32, "F32", "float32", 4},
    {DType::I64, "I64", "", 8},
    {DType::U64, "U64", "", 8},
    {DType::F64, "F64", "", 8},
    {DType::C64, "C64", "", 8},
}};

const Row& row_of(DType dtype) {
  const Row& row = kRows[static_cast<size_t>(dtype)];
  DSJ_CHECK(row.dtype == dtype);
  return row;
}

float fp16_bits_to_float(uint32_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  // Exponent and fraction are shifted to fp32's position; the product corrects the exponent's bias.
  // As an fp32 product, it also normalises fp16's subnormal numbers.
  const uint32_t shifted = (half & 0x7fffu) << 13;
  float value = std::bit_cast<float>(shifted) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((half & 0x7c00u) == 0x7c00u) bits = shifted | 0x7f800000u;
  return std::bit_cast<float>(bits | sign);
}

uint16_t float_to_fp16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520: halfway between the largest fp16 and the next
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14, fp16's smallest normal number
    // The last bit of 0.5 has the weight of fp16's last subnormal bit: the addition rounds.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<uint32_t>(rounded) - std::bit_cast<uint32_t>(0.5f);
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(half | sign);
}

uint16_t float_to_bf16_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

}  // namespace

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}
std::string_view dtype_name(DType dtype) {
  return row_of(dtype).name;
}
std::string_view config_dtype_name(DType dtype) {
  return row_of(dtype).config_name;
}
int64_t dtype_bytes(DType dtype) {
  return row_of(dtype).bytes;
}
bool is_weight_dtype(DType dtype) {
  return !row_of(dtype).config_name.empty();
}

void bf16_to_float(std::span<const uint16_t> in, std::span<float> out) {
  DSJ_CHECK(in.size() == out.size());
  for (size_t i = 0; i < in.size(); ++i) out[i] = std::bit_cast<float>(uint32_t{in[i]} << 16);
}
void fp16_to_float(std::span<const uint16_t> in, std::span<float> out) {
  DSJ_CHECK(in.size() == out.size());
  for (size_t i = 0; i < in.size(); ++i) out[i] = fp16_bits_to_float(in[i]);
}
void float_to_bf16(std::span<const float> in, std::span<uint16_t> out) {
  DSJ_CHECK(in.size() == out.size());
  for (size_t i = 0; i < in.size(); ++i) out[i] = float_to_bf16_bits(in[i]);
}
void float_to_fp16(std::span<const float> in, std::span<uint16_t> out) {
  DSJ_CHECK(in.size() == out.size());
  for (size_t i = 0; i < in.size(); ++i) out[i] = float_to_fp16_bits(in[i]);
}

}  // namespace dsj::weights
