// Predicts the seconds of a step as a weighted sum of what its schedule counts. The weights
// begin as a guess and follow the measurements. Pure.
#pragma once

#include <array>
#include <span>

namespace dsj::tune {

/// The work of one rank in a step of a configuration, counted before it runs. All values except
/// the first may be 0.
struct Counts {
  double products = 1;    ///< tokens x parameters: the matrix products
  double weights = 0;     ///< micro-steps x parameters: weights and gradients that are traversed
  double wire_bytes = 0;  ///< sent per step
  double actions = 0;     ///< entries of the step's schedule: units run, gathered, reduced
};

class CostModel {
 public:
  struct Measured {
    Counts counts;
    double seconds = 0;  ///< above 0
  };
  /// `all`: at least one; the first sets the scale of the initial guess. Ridge regression
  /// towards the guess, of relative errors; no weight becomes negative.
  explicit CostModel(std::span<const Measured> all);
  double seconds(const Counts& counts) const;

 private:
  static constexpr size_t kTerms = 4;
  using Terms = std::array<double, kTerms>;
  static Terms terms_of(const Counts& counts);
  Terms scale_{}, weights_{};  ///< seconds = sum of weights x terms / scale
};

}  // namespace dsj::tune
