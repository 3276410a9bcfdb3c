// What a flat's gradient, norm and update queue on a GPU besides the units' work, and what they
// send: the counterpart, on sizes only, of engine/zero/flat/flat.cc. 16-bit compute types. Pure.
// Tested by: tests/engine/simulated/work_test.cc, tests/job/roofline/roofline_test.cc
#pragma once

#include <cstdint>

#include "job/dsconfig/config/resolved.h"
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
  int world = 1;   ///< ranks among which it is sharded and reduced
  int states = 2;  ///< of the optimizer, without the fp32 master
  bool leaves =
      false;  ///< the gradient's sum is offloaded to the host (engine/zero/flat/host_sum.h)
};

/// One reduction: the operations before it, the transfer, the operations after it.
struct Reduction {
  Ops before, after;
  int64_t sent = 0;          ///< bytes that a rank sends, by a ring's formulas; 0 if none
  int64_t collectives = 0;   ///< calls
  bool gone = false;         ///< the units' gradient no longer exists
  int64_t up = 0, down = 0;  ///< bytes of an offloaded sum: fetched, then stored
};
/// Whether the micro-step is the first or the last of the step.
Reduction reduction(const FlatState& state, bool first, bool last);

/// The sum of the squares of the gradient.
Ops norm_work(const FlatState& state);

/// An update, on the device and, for offloaded parts, in host memory.
struct Updated {
  Ops device;
  int64_t up = 0;    ///< bytes to the device: 16-bit parameters, and gradients for updates there
  int64_t host = 0;  ///< bytes that the update reads and writes in host memory
};
Updated update_work(const FlatState& state, const std::vector<layout::Part>& optimizer,
                    const std::vector<layout::Part>& parameters);

/// Bytes that a rank sends when a flat of 16-bit elements is gathered over `ranks` ranks.
int64_t gathered_bytes(const layout::FlatLayout& flat, int ranks);

}  // namespace dsj::roofline
