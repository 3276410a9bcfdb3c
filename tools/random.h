// A small generator with the same numbers on every platform, unlike the standard's
// distributions. Not for cryptography. For one thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>
#include <vector>

namespace dsj::tools {

/// Steele, Lea and Flood's SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// In [0, count). `count` is small here, so the modulo's bias does not matter.
  uint64_t below(uint64_t count) { return next() % count; }

  /// Standard normal, by Box and Muller.
  float normal() {
    const double u = (static_cast<double>(next() >> 11) + 1.0) * 0x1.0p-53;
    const double v = static_cast<double>(next() >> 11) * 0x1.0p-53;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }

  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace dsj::tools
