// NumPy's default_rng(seed), as far as Hugging Face's datasets use it: PCG64 (XSL RR 128/64,
// O'Neill 2014), seeded by SeedSequence. The same seed therefore holds out and interleaves the
// same rows. Internal to engine/data.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace dsj::data {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint64_t seed);

  uint64_t next64();
  uint32_t next32();  ///< the lower half of a next64(), then its upper half
  double uniform();   ///< in [0, 1), 53 bits
  /// In [0, most], most < 2^32, by masked rejection as in Generator.shuffle.
  uint32_t at_most(uint32_t most);

  /// Generator.permutation(n), n < 2^32.
  std::vector<int64_t> permutation(int64_t n);

 private:
  using Wide = unsigned __int128;
  void step();
  Wide state_ = 0, increment_ = 0;
  std::optional<uint32_t> upper_;
};

/// Draws numbers as Generator.choice(n, p=weights) does: by the sums of the weights.
class WeightedChoice {
 public:
  /// Weights are at least 0, one of them above 0.
  explicit WeightedChoice(std::span<const double> weights);
  size_t draw(NumpyRandom& random) const;

 private:
  std::vector<double> sums_;  ///< cumulative weights, as shares of their sum
};

}  // namespace dsj::data
