// How a 1-bit optimizer counts its steps, and whether a run reaches ZeroOneAdam's local steps. The
// engine (engine/optim/one_bit.h) and the plan use it. Pure.
// Tested by: tests/engine/optim/one_bit_test.cc, tests/job/plan/memory_model_test.cc
#pragma once

#include <cstdint>

#include "job/dsconfig/config/resolved.h"

namespace dsj::dsconfig {

/// DeepSpeed counts calls of step(), from 1. With 16 bits, the first call has zero gradients and
/// comes before training. With fp32, it takes the first training step, which is lost.
int64_t one_bit_count(const ResolvedConfig& config, int64_t updates);
/// The count at ZeroOneAdam's first step after the final freeze of its variance.
int64_t first_local_step(const OptimizerConfig& optimizer);
/// Whether ranks take local steps without communication in this run; true if its length is unknown.
bool has_local_steps(const ResolvedConfig& config);

}  // namespace dsj::dsconfig
