// Quantisation by blocks against bitsandbytes' own (tests/oracle/eight_bit_oracle.py), and its rules on drawn numbers.
#include "engine/optim/eight_bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "test_paths.h"

namespace dsj::optim {
namespace {

nlohmann::json eight_bit_record() {
  std::ifstream file(DSJ_SOURCE_DIR "/tests/fixtures/eight-bit/record.json");
  return nlohmann::json::parse(file);
}

constexpr int64_t kQuantisedBlock = 256;

TEST(EightBitMaps, AreBitsandbytes) {
  const auto maps = eight_bit_record()["maps"];
  const std::pair<const char*, const DynamicMap&> both[] = {
      {"signed", DynamicMap::with_sign()}, {"unsigned", DynamicMap::without_sign()}};
  for (const auto& [name, map] : both) {
    ASSERT_EQ(maps[name].size(), map.values().size());
    for (size_t i = 0; i < map.values().size(); ++i) {
      const float theirs = maps[name][i];
      // torch.linspace rounds by the vectors of the CPU that it runs on.
      EXPECT_NEAR(map.values()[i], theirs, std::ldexp(std::abs(theirs), -22)) << name << " " << i;
    }
  }
}

TEST(EightBitMaps, CodesAndScalesAreBitsandbytesToTheBit) {
  const auto record = eight_bit_record();
  for (const char* name : {"signed", "unsigned"}) {
    const DynamicMap map(record["maps"][name].get<DynamicMap::Values>());
    const auto numbers = record["blocks"][name]["numbers"].get<std::vector<float>>();
    std::vector<uint8_t> codes(numbers.size());
    std::vector<float> scales;
    const auto all = static_cast<int64_t>(numbers.size());
    for (int64_t at = 0; at < all; at += kQuantisedBlock)
      scales.push_back(pack_block(map, &numbers[size_t(at)], std::min(kQuantisedBlock, all - at),
                                  &codes[size_t(at)]));
    EXPECT_EQ(codes, record["blocks"][name]["codes"].get<std::vector<uint8_t>>()) << name;
    EXPECT_EQ(scales, record["blocks"][name]["scales"].get<std::vector<float>>()) << name;
  }
}

/// The definition.
uint8_t nearest_code(const DynamicMap& map, float x) {
  int best = 0;
  for (int i = 1; i < DynamicMap::kValues; ++i)
    if (std::abs(x - map.values()[size_t(i)]) < std::abs(x - map.values()[size_t(best)])) best = i;
  return static_cast<uint8_t>(best);
}

TEST(EightBitMaps, TheCodeIsTheNearestValue) {
  std::mt19937 random(5);
  for (const DynamicMap* map : {&DynamicMap::with_sign(), &DynamicMap::without_sign()}) {
    std::vector<float> numbers = {0.0f, -0.0f, 1.0f, -1.0f, FLT_MIN, -FLT_MIN, 1e-45f};
    for (const float edge : map->edges())
      for (const float to : {-2.0f, 2.0f})
        numbers.insert(numbers.end(), {edge, std::nextafter(edge, to)});
    for (int i = 0; i < 20000; ++i)
      numbers.push_back(std::pow(10.0f, -8 * static_cast<float>(random() % 1000) / 1000) *
                        (random() % 2 ? 1.0f : -1.0f));
    for (const float x : numbers) ASSERT_EQ(map->code(x), nearest_code(*map, x)) << x;
  }
}

/// A checkpoint has the numbers and the scales: they give the codes again.
TEST(EightBitMaps, WhatWasQuantisedHasTheSameCodesAgain) {
  std::mt19937 random(6);
  for (int round = 0; round < 400; ++round) {
    const bool with_sign = round % 2 == 0;
    const DynamicMap& map = with_sign ? DynamicMap::with_sign() : DynamicMap::without_sign();
    // From the least normal numbers on to large ones.
    const auto size = static_cast<float>(std::pow(10.0, -38 + static_cast<int>(random() % 70)));
    std::vector<float> numbers(1 + random() % 256), again(numbers.size());
    for (float& x : numbers) {
      x = size * std::pow(10.0f, -7 * static_cast<float>(random() % 1000) / 1000);
      if (with_sign && random() % 2) x = -x;
    }
    const auto n = static_cast<int64_t>(numbers.size());
    std::vector<uint8_t> codes(numbers.size()), second(numbers.size());
    const float scale = pack_block(map, numbers.data(), n, codes.data());
    unpack_block(map, scale, codes.data(), n, again.data());
    pack_block_by(map, scale, again.data(), n, second.data());
    if (scale > 0) {
      ASSERT_EQ(codes, second) << scale;
      continue;
    }
    for (const float x : again) ASSERT_EQ(x, 0) << "below the least normal number all are zeros";
  }
}

TEST(EightBitMaps, ANumberThatIsNotFiniteMakesItsBlockNaN) {
  const DynamicMap& map = DynamicMap::with_sign();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), INFINITY, -INFINITY}) {
    std::vector<float> numbers = {1, 2, bad, 3}, out(4);
    std::vector<uint8_t> codes(4);
    const float scale = pack_block(map, numbers.data(), 4, codes.data());
    unpack_block(map, scale, codes.data(), 4, out.data());
    for (const float x : out) EXPECT_TRUE(std::isnan(x));
  }
  std::vector<float> zeros(4), out(4, 7.0f);
  std::vector<uint8_t> codes(4);
  EXPECT_EQ(pack_block(map, zeros.data(), 4, codes.data()), 0);
  unpack_block(map, 0, codes.data(), 4, out.data());
  EXPECT_EQ(out, zeros);
}

}  // namespace
}  // namespace dsj::optim
