#include "engine/optim/four_bit.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace dsj::optim {
namespace {

/// [i]: numbers above it are nearer to kNf4[i + 1] than to kNf4[i].
constexpr std::array<float, 15> kEdges = [] {
  std::array<float, 15> edges{};
  for (size_t i = 0; i < edges.size(); ++i) edges[i] = (kNf4[i] + kNf4[i + 1]) / 2;
  return edges;
}();

uint8_t code_of(float x) {
  size_t code = 0;
  for (const size_t step : {8, 4, 2, 1})
    if (x > kEdges[code + step - 1]) code += step;
  return static_cast<uint8_t>(code);
}

constexpr float kLeastScale = 1e-38f;

}  // namespace

float pack_nf4(const float* x, int64_t n, bool whole, uint8_t* codes) {
  float scale = 0;
  for (int64_t i = 0; i < n; ++i) scale = std::max(scale, std::abs(x[i]));
  if (!whole) scale = std::max(scale, kLeastScale);
  const float inverse = 1 / std::max(scale, kLeastScale);
  const auto code = [&](int64_t i) {
    return code_of(std::clamp(whole ? x[i] * inverse : x[i] / scale, -1.0f, 1.0f));
  };
  for (int64_t i = 0; i < n; i += 2) {
    const uint8_t second = i + 1 < n ? code(i + 1) : code_of(0);
    codes[i / 2] = static_cast<uint8_t>(code(i) << 4 | second);
  }
  return scale;
}

void unpack_nf4(float scale, const uint8_t* codes, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i)
    x[i] = kNf4[i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15] * scale;
}

float mean_of_scales(const float* scales, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(scales[i]);
  return static_cast<float>(sum / static_cast<double>(n));
}

float pack_scales(const DynamicMap& map, const float* scales, int64_t n, float mean,
                  uint8_t* codes) {
  std::vector<float> apart(scales, scales + n);
  for (float& one : apart) one -= mean;
  return pack_block(map, apart.data(), n, codes);
}

float unpacked_scale(const DynamicMap& map, float of_group, float mean, uint8_t code) {
  const float apart = map.values()[code] * of_group;
  return apart + mean;
}

}  // namespace dsj::optim
