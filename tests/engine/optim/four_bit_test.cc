// Weights in 4 bits against bitsandbytes' own codes, scales and numbers (tests/oracle/four_bit_oracle.py), to the bit.
#include "engine/optim/four_bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "test_paths.h"

namespace dsj::optim {
namespace {

constexpr int64_t kBlockOf4Bits = 64, kGroupOfScales = 256;

nlohmann::json four_bit_record() {
  std::ifstream file(DSJ_SOURCE_DIR "/tests/fixtures/four-bit.json");
  return nlohmann::json::parse(file);
}

/// numbers_of() of the oracle.
std::vector<float> drawn_numbers(const nlohmann::json& one) {
  constexpr double kDecades[] = {1.0, 0.1, 0.01, 0.001};
  const uint64_t seed = one["seed"];
  uint64_t x = 88172645463325252u + seed * 2654435761u;
  std::vector<float> out;
  for (int64_t i = 0; i < one["count"]; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    const double whole = static_cast<double>(static_cast<int64_t>(x % 2001) - 1000);
    out.push_back(static_cast<float>(whole / 1000 * kDecades[(x >> 20) % 4]));
  }
  const std::string change = one["change"];
  if (change == "zeros") {
    std::fill(out.begin() + 128, out.begin() + 192, 0.0f);
    std::fill(out.begin() + 576, out.end(), 0.0f);
  } else if (change == "all zeros") {
    std::ranges::fill(out, 0.0f);
  } else if (change == "sizes") {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(
          std::ldexp(static_cast<double>(out[i]), static_cast<int>(i / 64 * 7 % 60) - 35));
  } else if (change == "edges") {
    for (size_t block = 0; block < out.size() / 64; ++block) {
      float* at = &out[64 * block];
      at[0] = 1;
      for (size_t i = 0; i < 15; ++i) {
        const float middle = (kNf4[i] + kNf4[i + 1]) / 2;
        at[1 + i] = middle;
        at[16 + i] = std::nextafter(middle, 2.0f);
        at[31 + i] = std::nextafter(middle, -2.0f);
      }
      for (size_t i = 0; i < 64; ++i) at[i] = std::ldexp(at[i], static_cast<int>(block) - 8);
    }
  }
  return out;
}

/// A parameter as it is packed.
struct PackedNumbers {
  std::vector<uint8_t> codes;
  std::vector<float> scales;

  explicit PackedNumbers(const std::vector<float>& numbers) : codes((numbers.size() + 1) / 2) {
    const auto all = static_cast<int64_t>(numbers.size());
    for (int64_t at = 0; at < all; at += kBlockOf4Bits) {
      const int64_t n = std::min(kBlockOf4Bits, all - at);
      scales.push_back(
          pack_nf4(&numbers[size_t(at)], n, n == kBlockOf4Bits, &codes[size_t(at / 2)]));
    }
  }
  std::vector<float> numbers(const std::vector<float>& by, size_t count) const {
    std::vector<float> out(count);
    for (size_t at = 0; at < count; at += 64)
      unpack_nf4(by[at / 64], &codes[at / 2],
                 static_cast<int64_t>(std::min<size_t>(64, count - at)), &out[at]);
    return out;
  }
};

std::string hexadecimal(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes)
    for (const int half : {byte >> 4, byte & 15}) text += "0123456789abcdef"[half];
  return text;
}

/// FNV-1a over the bytes.
template <typename T>
std::string hash_of_bytes(const std::vector<T>& numbers) {
  uint64_t value = 0xcbf29ce484222325;
  const auto* bytes = reinterpret_cast<const uint8_t*>(numbers.data());
  for (size_t i = 0; i < numbers.size() * sizeof(T); ++i)
    value = (value ^ bytes[i]) * 0x100000001b3;
  std::string text(16, '0');
  for (size_t i = 0; i < 16; ++i) text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 15];
  return text;
}

uint16_t in_bfloat16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

TEST(FourBits, TheCodesAreBitsandbytes) {
  EXPECT_EQ(std::vector<float>(kNf4.begin(), kNf4.end()),
            four_bit_record()["nf4"].get<std::vector<float>>());
}

TEST(FourBits, CodesScalesAndNumbersAreBitsandbytesToTheBit) {
  const auto record = four_bit_record();
  ASSERT_GE(record["cases"].size(), 9u);
  for (const auto& [name, one] : record["cases"].items()) {
    const auto numbers = drawn_numbers(one);
    const PackedNumbers packed(numbers);
    EXPECT_EQ(hexadecimal(packed.codes), one["codes"].get<std::string>()) << name;
    EXPECT_EQ(packed.scales, one["scales"].get<std::vector<float>>()) << name;
    EXPECT_EQ(hash_of_bytes(packed.numbers(packed.scales, numbers.size())),
              one["numbers"].get<std::string>())
        << name;
  }
}

/// With its map and its mean, which torch rounds by the vectors of the CPU that it runs on.
TEST(FourBits, TheSecondLevelIsBitsandbytesToTheBit) {
  const auto record = four_bit_record();
  const DynamicMap map(record["map"].get<DynamicMap::Values>());
  for (size_t i = 0; i < map.values().size(); ++i)
    EXPECT_NEAR(DynamicMap::with_sign().values()[i], map.values()[i],
                std::ldexp(std::abs(map.values()[i]), -22));
  for (const auto& [name, one] : record["cases"].items()) {
    const auto numbers = drawn_numbers(one);
    const PackedNumbers packed(numbers);
    const auto& theirs = one["two_levels"];
    const auto all = static_cast<int64_t>(packed.scales.size());
    const float mean = theirs["mean"];
    EXPECT_NEAR(mean_of_scales(packed.scales.data(), all), mean, std::ldexp(std::abs(mean), -22))
        << name;
    std::vector<uint8_t> codes(packed.scales.size());
    std::vector<float> groups, scales(packed.scales.size());
    for (int64_t at = 0; at < all; at += kGroupOfScales) {
      const int64_t n = std::min(kGroupOfScales, all - at);
      groups.push_back(pack_scales(map, &packed.scales[size_t(at)], n, mean, &codes[size_t(at)]));
      for (int64_t i = at; i < at + n; ++i)
        scales[size_t(i)] = unpacked_scale(map, groups.back(), mean, codes[size_t(i)]);
    }
    EXPECT_EQ(hexadecimal(codes), theirs["codes"].get<std::string>()) << name;
    EXPECT_EQ(groups, theirs["scales"].get<std::vector<float>>()) << name;
    const auto again = packed.numbers(scales, numbers.size());
    EXPECT_EQ(hash_of_bytes(again), theirs["numbers"].get<std::string>()) << name;
    std::vector<uint16_t> low;
    for (const float x : again) low.push_back(in_bfloat16(x));
    EXPECT_EQ(hash_of_bytes(low), theirs["bfloat16"].get<std::string>()) << name;
  }
}

/// The definition, over drawn blocks: no other code is nearer, and packing what was unpacked changes
/// nothing.
TEST(FourBits, TheCodeIsTheNearestAndPackingTwiceIsPackingOnce) {
  std::mt19937 random(33);
  for (int round = 0; round < 2000; ++round) {
    const auto n = round % 3 == 0 ? static_cast<int64_t>(1 + random() % 63) : kBlockOf4Bits;
    const float size = std::ldexp(1.0f, static_cast<int>(random() % 120) - 80);
    std::vector<float> numbers(static_cast<size_t>(n)), again(numbers.size());
    for (float& x : numbers) x = size * (static_cast<float>(random() % 20001) / 10000 - 1);
    std::vector<uint8_t> codes(numbers.size() / 2 + 1), second(codes.size());
    const float scale = pack_nf4(numbers.data(), n, n == kBlockOf4Bits, codes.data());
    unpack_nf4(scale, codes.data(), n, again.data());
    for (size_t i = 0; i < numbers.size(); ++i)
      for (const float code : kNf4)
        ASSERT_LE(std::abs(again[i] - numbers[i]),
                  std::abs(code * scale - numbers[i]) + scale * 1e-6f)
            << numbers[i];
    const float same = pack_nf4(again.data(), n, n == kBlockOf4Bits, second.data());
    ASSERT_EQ(same, scale);
    ASSERT_EQ(std::vector<uint8_t>(codes.begin(), codes.begin() + (n + 1) / 2),
              std::vector<uint8_t>(second.begin(), second.begin() + (n + 1) / 2));
  }
}

}  // namespace
}  // namespace dsj::optim
