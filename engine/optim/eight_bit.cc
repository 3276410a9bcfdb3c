#include "engine/optim/eight_bit.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "common/check.h"

namespace dsj::optim {
namespace {

/// Decade i below 1, from the lowest: 2^i values, or twice as many if unsigned. They are the means
/// of adjacent numbers that divide [0.1, 1] evenly.
DynamicMap::Values dynamic_values(bool with_sign) {
  constexpr int kDecades = 7;
  DynamicMap::Values values;
  size_t count = 0;
  for (int decade = 0; decade < kDecades; ++decade) {
    const int fractions = (with_sign ? 1 : 2) << decade;
    const auto unit = static_cast<float>(std::pow(10.0, decade - kDecades + 1));
    for (int i = 0; i < fractions; ++i) {
      const float value = unit * static_cast<float>(0.1 + 0.9 * (i + 0.5) / fractions);
      values[count++] = value;
      if (with_sign) values[count++] = -value;
    }
  }
  values[count++] = 0;
  values[count++] = 1;
  DSJ_CHECK(count == values.size());
  std::ranges::sort(values);
  return values;
}

/// Maps finite floats to integers in the same order, and back.
int32_t ordinal(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  return bits >= 0 ? bits : std::numeric_limits<int32_t>::min() - bits;
}
float from_ordinal(int32_t at) {
  return std::bit_cast<float>(at >= 0 ? at : std::numeric_limits<int32_t>::min() - at);
}

float edge_between(float low, float high) {
  int64_t below = ordinal(low), above = ordinal(high);  // nearer to low, nearer to high
  while (above - below > 1) {
    const int64_t middle = below + (above - below) / 2;
    const float x = from_ordinal(static_cast<int32_t>(middle));
    (std::abs(x - high) < std::abs(x - low) ? above : below) = middle;
  }
  return from_ordinal(static_cast<int32_t>(above));
}

}  // namespace

DynamicMap::DynamicMap(const Values& values)
    : values_(values), first_(std::make_unique<std::array<uint8_t, 65536>>()) {
  DSJ_CHECK(std::ranges::is_sorted(values_) && values_.front() >= -1 && values_.back() == 1);
  for (size_t i = 0; i < edges_.size(); ++i) edges_[i] = edge_between(values_[i], values_[i + 1]);
  for (uint32_t key = 0; key < first_->size(); ++key) {
    const bool negative = key >= 0x8000;
    const float least = std::bit_cast<float>(key << 16 | (negative ? 0xffff : 0));
    const float most = std::bit_cast<float>(key << 16 | (negative ? 0 : 0xffff));
    if (std::isnan(least) || std::isnan(most)) continue;
    const auto at = std::ranges::upper_bound(edges_, least);
    (*first_)[key] = static_cast<uint8_t>(at - edges_.begin());
    // One more comparison finds the code.
    DSJ_CHECK(at == edges_.end() || at + 1 == edges_.end() || at[1] > most);
  }
}

const DynamicMap& DynamicMap::with_sign() {
  static const DynamicMap map(dynamic_values(true));
  return map;
}

const DynamicMap& DynamicMap::without_sign() {
  static const DynamicMap map(dynamic_values(false));
  return map;
}

uint8_t DynamicMap::code(float x) const {
  const int first = (*first_)[std::bit_cast<uint32_t>(x) >> 16];
  return static_cast<uint8_t>(first + (first < kValues - 1 && x >= edges_[size_t(first)]));
}

float pack_block(const DynamicMap& map, const float* x, int64_t n, uint8_t* codes) {
  uint32_t most = 0;  // compared as bits without sign: ordered by absolute value, NaN last
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
  const float absmax = std::bit_cast<float>(most);
  const float scale = !std::isfinite(absmax) ? std::numeric_limits<float>::quiet_NaN()
                      : absmax < FLT_MIN     ? 0
                                             : absmax;
  pack_block_by(map, scale, x, n, codes);
  return scale;
}

void pack_block_by(const DynamicMap& map, float scale, const float* x, int64_t n, uint8_t* codes) {
  if (!(scale >= FLT_MIN)) {
    std::fill_n(codes, n, 0);
    return;
  }
  const float inverse = 1 / scale;
  for (int64_t i = 0; i < n; ++i) codes[i] = map.code(std::clamp(x[i] * inverse, -1.0f, 1.0f));
}

void unpack_block(const DynamicMap& map, float scale, const uint8_t* codes, int64_t n, float* x) {
  if (scale == 0) {
    std::fill_n(x, n, 0.0f);
    return;
  }
  for (int64_t i = 0; i < n; ++i) x[i] = map.values()[codes[i]] * scale;
}

}  // namespace dsj::optim
