// A roofline estimate of an optimizer step on a GPU of the table: the step schedule that the
// trainer walks (layout/schedule.h), with what each action queues (unit_work.h, state_work.h), what
// the links carry, and which work overlaps. It uses counts and datasheets, no measurements of the
// job. `dsj plan --device` prints it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/plan/memory_input.h"
#include "job/roofline/gpus.h"

namespace dsj::roofline {

/// One kind of work of a step, on one rank.
struct Part {
  const char* name;
  double seconds = 0;  ///< if it ran alone
  double hidden = 0;   ///< the part of these that overlaps other work
  double flops = 0;
  double bytes = 0;  ///< of the GPU's memory, or over a link for work of a link
  int64_t launches = 0;
};

struct Roofline {
  std::vector<Part> parts;
  double seconds = 0;        ///< per step
  double tokens = 0;         ///< per step, all ranks
  double needed_flops = 0;   ///< per step and rank, without what recompute repeats
  double share_of_peak = 0;  ///< needed_flops / `seconds` / Gpu::flops
  int64_t launches = 0;      ///< per step and rank
  std::string bound;         ///< the part with the most time that is not hidden
  double tokens_per_second() const { return tokens / seconds; }
};

/// Why a job's steps cannot be counted (path of the key first), and what can. nullopt if they can.
struct Uncounted {
  std::string path, what, hint;
};
std::optional<Uncounted> uncounted(const plan::MemoryInput& input);

/// `gpus_per_machine`: ranks that the fast link connects. uncounted(input) must be nullopt. A
/// micro-batch has the most tokens and targets that the input allows, in rows of equal length.
Roofline roofline(const plan::MemoryInput& input, const Gpu& gpu, int gpus_per_machine);

/// Bytes of the GPU that a rank's tensors may take.
int64_t usable_memory(const Gpu& gpu);

}  // namespace dsj::roofline
