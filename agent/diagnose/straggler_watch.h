// Finds ranks that slow down the others at every step. All ranks take the same time for a step,
// because they wait for each other; they differ in the time that a rank spends outside of
// collectives. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/diagnose/rank_look.h"

namespace dsj::agent {

struct Straggler {
  int rank = 0;
  double own_seconds = 0, others_seconds = 0;  ///< per step, outside of collectives
  int64_t since_step = 0;
  bool operator==(const Straggler&) const = default;
};

/// A rank is slow in a round (at least 8 steps and 5 s) if it needs more than 1.3 times the median
/// of the others and the difference is more than a tenth of the step and 30 ms. It becomes a
/// straggler after four slow rounds in a row, and stops being one after four rounds in a row below
/// 1.15 times. Evaluation, saving and an attempt's first step are not counted (job/flight_log.h).
/// What slows all ranks slows the median.
class StragglerWatch {
 public:
  /// False while judge() need not be called.
  bool due(Time now) const { return now >= next_; }
  /// `paces` has every rank, in order. `step` is the attempt's last. Returns true if the stragglers
  /// changed.
  bool judge(const std::vector<Pace>& paces, int64_t step, Time now);
  /// Ordered by rank.
  const std::vector<Straggler>& stragglers() const { return stragglers_; }
  /// Call when another attempt begins.
  void forget();

 private:
  struct Rank {
    int slow = 0, fine = 0;  ///< consecutive rounds
    int64_t since_step = 0;  ///< step of the first slow round
    bool named = false;
    Straggler figures;
  };
  bool round_is_over(const std::vector<Pace>& paces, Time now) const;
  void judge_rank(Rank& rank, double own, double others, double step_seconds, int64_t step) const;

  std::vector<Pace> before_;  ///< at the end of the last round
  std::vector<Rank> ranks_;
  std::vector<Straggler> stragglers_;
  Time next_{0}, round_began_{0};
};

/// "rank 5 (worker 2) needs 2.10 s of a step for itself, the others 1.00 s, since step 400; ...".
/// Empty if there are no stragglers. `slots` has the number of ranks of each worker.
std::string stragglers_text(const std::vector<Straggler>& stragglers,
                            const std::vector<int>& slots);

}  // namespace dsj::agent
