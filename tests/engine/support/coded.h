// ZeRO++'s codes as a slow twin: what numbers are after they went over the wire. One number at a time,
// by the formula of DeepSpeed's symmetric quantizer.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace dsj::testing_support {

/// In place, in blocks of 512 from the first number on.
inline void code(std::span<float> numbers, int bits) {
  const auto limit = static_cast<float>(1 << (bits - 1));
  for (std::size_t first = 0; first < numbers.size(); first += 512) {
    const auto block = numbers.subspan(first, std::min<std::size_t>(512, numbers.size() - first));
    float most = 0;
    for (const float x : block) most = std::max(most, std::abs(x));
    if (most == 0) continue;
    const float factor = limit / most;
    for (float& x : block)
      x = std::clamp(std::nearbyint(x * factor), -limit, limit - 1) * (1 / factor);
  }
}

/// [n] fp32, a copy.
inline at::Tensor coded(const at::Tensor& numbers, int bits) {
  at::Tensor copy = numbers.contiguous().clone();
  code({copy.data_ptr<float>(), static_cast<std::size_t>(copy.numel())}, bits);
  return copy;
}

}  // namespace dsj::testing_support
