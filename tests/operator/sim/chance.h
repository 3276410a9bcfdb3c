// All chance of a simulation, from one seed.
#pragma once

#include <cstdint>
#include <random>

namespace dsj::op::sim {

class Chance {
 public:
  explicit Chance(uint64_t seed) : engine_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  /// In [0, 1).
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1.0p-53; }
  bool happens(double probability) { return unit() < probability; }
  int below(int count) { return static_cast<int>(unit() * count); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dsj::op::sim
