// How a 1-bit optimizer counts its steps, and whether a run comes to ZeroOneAdam's local ones. The
// engine goes by it (engine/optim/one_bit.h), and so do the plan's bytes. Pure.
// Tested by: tests/engine/optim/one_bit_test.cc, tests/job/plan/memory_model_test.cc
#pragma once

#include <cstdint>

#include "job/dsconfig/resolved.h"

namespace dsj::dsconfig {

/// DeepSpeed counts calls of step(), from 1. In 16 bits its first call is spent on zero gradients
/// before training; in fp32 the first step of training is lost for it.
int64_t one_bit_count(const ResolvedConfig& config, int64_t updates);
/// The count of ZeroOneAdam's first step after its variance is frozen for good.
int64_t first_local_step(const OptimizerConfig& optimizer);
/// Whether ranks update by themselves in some step of the run. Where its length is not known: yes.
bool has_local_steps(const ResolvedConfig& config);

}  // namespace dsj::dsconfig
