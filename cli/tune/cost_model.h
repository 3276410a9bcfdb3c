// Seconds of a step from what its schedule counts: a weighted sum, whose weights begin as a guess and
// follow what was measured. Pure.
#pragma once

#include <array>
#include <span>

namespace dsj::tune {

/// What a step of one configuration does on one rank, counted before it runs. All may be 0 but the
/// first.
struct Counts {
  double products = 1;    ///< tokens x parameters: the matrix products
  double weights = 0;     ///< micro-steps x parameters: weights and gradients that are walked
  double wire_bytes = 0;  ///< sent per step
  double actions = 0;     ///< entries of the step's schedule: units run, gathered, reduced
};

class CostModel {
 public:
  struct Measured {
    Counts counts;
    double seconds = 0;  ///< above 0
  };
  /// `all`: at least one; the first gives the scale of the guess. Ridge regression towards it:
  /// relative errors count, and no weight is negative.
  explicit CostModel(std::span<const Measured> all);
  double seconds(const Counts& counts) const;

 private:
  static constexpr size_t kTerms = 4;
  using Terms = std::array<double, kTerms>;
  static Terms terms_of(const Counts& counts);
  Terms scale_{}, weights_{};  ///< seconds = sum of weights x terms / scale
};

}  // namespace dsj::tune
