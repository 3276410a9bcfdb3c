#include "engine/weights/formats/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace dsj::weights {
namespace {

/// Slow and readable: sign, exponent and fraction by their definition.
float fp16_by_definition(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  double value;
  if (exponent == 31) {
    value = fraction ? NAN : INFINITY;
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return float(bits & 0x8000 ? -value : value);
}

std::vector<uint16_t> all_16bit() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = uint16_t(i);
  return all;
}

TEST(DType, EveryFp16IsReadExactlyAndWrittenBack) {
  const auto bits = all_16bit();
  std::vector<float> values(bits.size());
  fp16_to_float(bits, values);
  std::vector<uint16_t> back(bits.size());
  float_to_fp16(values, back);
  for (size_t i = 0; i < bits.size(); ++i) {
    const float expected = fp16_by_definition(bits[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(values[i])) << i;
      EXPECT_EQ(back[i] & 0x7e00, 0x7e00) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(expected)) << i;
      ASSERT_EQ(back[i], bits[i]) << i;
    }
  }
}

TEST(DType, EveryBf16IsReadExactlyAndWrittenBack) {
  const auto bits = all_16bit();
  std::vector<float> values(bits.size());
  bf16_to_float(bits, values);
  std::vector<uint16_t> back(bits.size());
  float_to_bf16(values, back);
  for (size_t i = 0; i < bits.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), uint32_t(bits[i]) << 16);
    if (std::isnan(values[i])) {
      EXPECT_EQ(back[i], bits[i] | 0x40) << i;
    } else {
      ASSERT_EQ(back[i], bits[i]) << i;
    }
  }
}

/// The nearest of the two 16-bit neighbours, the even one at a tie, compared in double.
void expect_nearest(float value, uint16_t found, const std::vector<float>& decoded,
                    const char* what) {
  const uint16_t magnitude = found & 0x7fff;
  const double distance = std::abs(double(value) - double(decoded[found]));
  for (const int neighbour : {magnitude - 1, magnitude + 1}) {
    if (neighbour < 0) continue;
    const uint16_t other = uint16_t(neighbour) | (found & 0x8000);
    if (!std::isfinite(decoded[other])) continue;
    const double other_distance = std::abs(double(value) - double(decoded[other]));
    ASSERT_LE(distance, other_distance) << what << " " << value;
    if (distance == other_distance) {
      ASSERT_EQ(found & 1, 0) << what << " " << value;
    }
  }
}

TEST(DType, FloatsGoToTheNearestTiesToEven) {
  const auto bits = all_16bit();
  std::vector<float> fp16(bits.size()), bf16(bits.size());
  fp16_to_float(bits, fp16);
  bf16_to_float(bits, bf16);
  std::vector<float> values;
  std::mt19937 random(7);
  for (int i = 0; i < 200'000; ++i) {
    const float value = std::bit_cast<float>(uint32_t(random()));
    if (std::isfinite(value)) values.push_back(value);
    values.push_back(std::ldexp(float(random()) * 0x1p-32f - 0.5f, int(random() % 44) - 27));
  }
  for (size_t i = 0; i + 1 < bits.size(); ++i) {  // every exact half-way point
    if (std::isfinite(fp16[i]) && std::isfinite(fp16[i + 1])) {
      values.push_back((fp16[i] + fp16[i + 1]) / 2);
    }
  }
  std::vector<uint16_t> to_fp16(values.size()), to_bf16(values.size());
  float_to_fp16(values, to_fp16);
  float_to_bf16(values, to_bf16);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::abs(values[i]) < 65520) {
      expect_nearest(values[i], to_fp16[i], fp16, "fp16");
    } else {
      ASSERT_EQ(to_fp16[i] & 0x7fff, 0x7c00) << values[i];
    }
    if (std::abs(values[i]) < 3.39e38f) expect_nearest(values[i], to_bf16[i], bf16, "bf16");
  }
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(dtype_from_name("BF16"), DType::BF16);
  EXPECT_EQ(dtype_from_name("bf16"), std::nullopt);
  EXPECT_EQ(dtype_bytes(DType::F64), 8);
  EXPECT_EQ(config_dtype_name(DType::BF16), "bfloat16");
  EXPECT_FALSE(is_weight_dtype(DType::I64));
}

}  // namespace
}  // namespace dsj::weights
