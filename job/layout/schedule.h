// The schedule of one optimizer step: a list of which flats are gathered when, what runs, what is
// released, what is reduced. Backward ends at the lowest trained unit. Frozen flats are gathered
// and released like others and never reduced. A pure function of sizes and limits: the trainer
// walks the list, the memory model counts with it, and all ranks make the same one, so that they
// issue collectives in one order.
#pragma once

#include <cstdint>
#include <vector>

#include "job/layout/partition.h"

namespace dsj::layout {

struct Action {
  enum class Kind {
    Gather,    ///< start gathering `flat`, ahead of its use or right before it
    Forward,   ///< run `unit` forward
    Turn,      ///< run the head forward and backward in one visit: loss and gradient
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
  bool sharded_parameters = false;  ///< layout/stage.h; if not, no Gather and no Release
  // In elements:
  int64_t prefetch = 50'000'000;               ///< gathered ahead; the last flat whole; 0: none
  int64_t max_live = 1'000'000'000;            ///< gathered at a time; a needed flat always fits
  int64_t max_reuse_distance = 1'000'000'000;  ///< a flat stays if it is used again within this
};

struct Schedule {
  std::vector<Action> actions;
  int64_t peak_live = 0;  ///< most gathered elements, with padding, without the persisted flat
  int64_t gathers = 0;    ///< gathers of flats
};

/// One forward pass (evaluation): Gather, Forward, Turn of the head, Release. Nothing stays
/// gathered.
Schedule make_forward_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                               const ScheduleLimits& limits);

/// `micro_steps` >= 1. Nothing stays gathered: the update makes gathered flats stale.
Schedule make_schedule(const std::vector<UnitSpec>& units, const FlatPlan& plan,
                       const ScheduleLimits& limits, int64_t micro_steps);

/// The flats that a micro-step reduces, in order.
std::vector<int> reductions(const Schedule& schedule);
/// The flat whose gradient is fetched, if it lies elsewhere, when that of `flat` is complete: the next
/// but one in `order`, which is reductions(), since the next one is being computed then. In the next
/// micro-step, if need be; -1: there is none, this is the step's last.
int flat_to_fetch(const std::vector<int>& order, int flat, bool last);

}  // namespace dsj::layout
