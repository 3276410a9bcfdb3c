// Which ranks hold up the others, step for step. All ranks take the same time for a step, because they
// wait for each other; what tells them apart is the time that a rank needs for itself, outside of
// collectives. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/diagnose/rank_look.h"

namespace dsj::agent {

struct Straggler {
  int rank = 0;
  double own_seconds = 0, others_seconds = 0;  ///< of a step, outside of collectives
  int64_t since_step = 0;
  bool operator==(const Straggler&) const = default;
};

/// A rank is slow in a round (at least 8 steps and 5 s) if it needs 1.3 times what the median of the
/// others needs, and if that costs a tenth of the step and 30 ms. It is a straggler after four slow rounds in a row,
/// and none any more after four in a row below 1.15 times. What is no step (evaluating, saving) is not
/// in its figures (job/flight_log.h), nor is an attempt's first step; and what slows all ranks, slows the
/// median.
class StragglerWatch {
 public:
  /// judge() need not be called earlier.
  bool due(Time now) const { return now >= next_; }
  /// `paces`: of every rank, in order. `step`: the attempt's last. True: the list has other ranks now.
  bool judge(const std::vector<Pace>& paces, int64_t step, Time now);
  /// By rank.
  const std::vector<Straggler>& stragglers() const { return stragglers_; }
  /// Another attempt.
  void forget();

 private:
  struct Rank {
    int slow = 0, fine = 0;  ///< rounds in a row
    int64_t since_step = 0;  ///< of the first slow one
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

/// "rank 5 (worker 2) needs 2.10 s of a step for itself, the others 1.00 s, since step 400; ...". Empty:
/// there are none. `slots`: ranks of each worker.
std::string stragglers_text(const std::vector<Straggler>& stragglers,
                            const std::vector<int>& slots);

}  // namespace dsj::agent
