// The schedule of one optimizer step as a list: which flats are gathered when, what runs, what is
// released, what is reduced. Backward ends at the lowest unit that is trained; frozen flats are
// gathered and released like others, and never reduced. A pure function of sizes and limits. The
// trainer walks the list, the memory model counts on it, and all ranks make the same one, so that
// collectives are issued in one order.
#pragma once

#include <cstdint>
#include <vector>

#include "common/layout/partition.h"

namespace dsj::layout {

struct Action {
  enum class Kind {
    Gather,    ///< start gathering `flat`: ahead of use, or right before it
    Forward,   ///< run `unit` forward
    Turn,      ///< run the last unit (head) forward and backward in one visit: loss and gradient
    Backward,  ///< run `unit` backward
    Release,   ///< free the gathered storage of `flat`
    Reduce,    ///< the gradient of `flat` is complete for this micro-step
  } kind;
  int unit = -1;
  int flat = -1;
  int micro_step = 0;
  friend bool operator==(const Action&, const Action&) = default;
};

struct ScheduleLimits {
  bool sharded_parameters = false;  ///< stage 3; without it there is no Gather and no Release
  int64_t prefetch =
      50'000'000;  ///< elements gathered ahead; a flat that crosses it is taken whole; 0: none
  int64_t max_live =
      1'000'000'000;  ///< gathered elements alive at a time; a needed flat is always taken
  int64_t max_reuse_distance =
      1'000'000'000;  ///< kept when the next use is at most this many elements away
};

struct Schedule {
  std::vector<Action> actions;
  int64_t peak_live =
      0;                ///< elements with padding, gathered flats only (the persisted one excluded)
  int64_t gathers = 0;  ///< flats gathered
};

/// A forward pass alone (evaluation): Gather, Forward, Turn of the head, Release; nothing is left
/// gathered.
Schedule make_forward_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                               const ScheduleLimits& limits);

/// `micro_steps` >= 1. After the last one every gathered flat is released: the update makes them
/// stale.
Schedule make_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       const ScheduleLimits& limits, int64_t micro_steps);

}  // namespace dsj::layout
