// What a flat's gradient, norm and update queue on a GPU beside the units' work, and what they ask
// of the links: the twin, on sizes, of engine/zero/flat.cc. 16-bit compute types. Pure.
// Tested by: tests/engine/simulated/work_test.cc, tests/job/roofline/roofline_test.cc
#pragma once

#include <cstdint>

#include "job/dsconfig/resolved.h"
#include "job/layout/offload.h"
#include "job/layout/partition.h"
#include "job/layout/stage.h"
#include "job/roofline/work.h"

namespace dsj::roofline {

/// A trained flat on one rank.
struct FlatState {
  const layout::FlatLayout& flat;
  const layout::Stage& stage;  ///< layout::stage_of_flat
  const dsconfig::ResolvedConfig& config;
  int world = 1;        ///< ranks among which it is cut and reduced
  int states = 2;       ///< of the optimizer, without the master
  bool leaves = false;  ///< the sum of the gradient lies in host memory (engine/zero/host_sum.h)
};

/// One reduction: what comes before it, what travels, what comes after.
struct Reduction {
  Ops before, after;
  int64_t sent = 0;          ///< bytes that a rank sends, by the formulas of a ring; 0: none
  int64_t collectives = 0;   ///< calls
  bool gone = false;         ///< the units' gradient is no longer there
  int64_t up = 0, down = 0;  ///< bytes of the sum that leaves: earlier micro-steps' back, and away
};
/// `first`, `last`: of the step's micro-steps.
Reduction reduction(const FlatState& state, bool first, bool last);

/// The sum of the gradient's squares.
Ops norm_work(const FlatState& state);

/// An update: on the device, and in host memory for what is offloaded, part by part.
struct Updated {
  Ops device;
  int64_t up = 0;  ///< bytes to the device: 16-bit parameters, and the gradient of what it updates
  int64_t host = 0;  ///< bytes that the update reads and writes in host memory
};
Updated update_work(const FlatState& state, const std::vector<layout::Part>& optimizer,
                    const std::vector<layout::Part>& parameters);

/// Bytes that a rank sends when a flat of 16-bit elements is gathered from so many ranks.
int64_t gathered_bytes(const layout::FlatLayout& flat, int ranks);

}  // namespace dsj::roofline
