// The roofline of an optimizer step on a GPU of the table, by count: the step schedule that the
// trainer walks (layout/schedule.h), with what each action queues (unit_work.h, state_work.h),
// what the links carry, and what hides behind what. Nothing in it was measured. `dsj plan --device`
// prints it. Pure.
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
  double hidden = 0;   ///< of these, behind other work
  double flops = 0;
  double bytes = 0;  ///< of the GPU's memory; of a link where it is a link's
  int64_t launches = 0;
};

struct Roofline {
  std::vector<Part> parts;
  double seconds = 0;        ///< of a step
  double tokens = 0;         ///< of a step, all ranks
  double needed_flops = 0;   ///< of a step, one rank: without what recompute repeats
  double share_of_peak = 0;  ///< needed_flops in `seconds`, of Gpu::flops
  int64_t launches = 0;      ///< of a step, one rank
  std::string bound;         ///< the part that takes most of the step's time
  double tokens_per_second() const { return tokens / seconds; }
};

/// Why a job's steps cannot be counted, and what can: the path of the key first. nullopt: they can.
struct Uncounted {
  std::string path, what, hint;
};
std::optional<Uncounted> uncounted(const plan::MemoryInput& input);

/// `gpus_per_machine`: ranks that the fast link joins. uncounted(input) must be nullopt. A
/// micro-batch has the most tokens and targets that the input knows, in rows of one length.
Roofline roofline(const plan::MemoryInput& input, const Gpu& gpu, int gpus_per_machine);

/// Bytes of the GPU that a rank's classes of memory may take.
int64_t usable_memory(const Gpu& gpu);

}  // namespace dsj::roofline
