// Whether a run fits into its limits, and the first change that makes it fit. Pure: it reads no
// limits itself. `dsj plan` and `dsj run` call it; cli/check/limits.h finds the limits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/plan/memory_model.h"

namespace dsj::plan {

/// A number of bytes and its source. Unset if unknown: then it refuses nothing.
struct Limit {
  std::optional<int64_t> bytes;
  std::string from = {};  ///< "the container's memory.max", "--memory"
};

struct Limits {
  Limit device;       ///< of one rank's accelerator; unset without one
  Limit host;         ///< of one worker, shared by its ranks
  Limit output_disk;  ///< free space at the output directory
  Limit nvme_disk;    ///< free space below nvme_path
  /// Free space below offload_param's nvme_path, if it differs from offload_optimizer's; nvme_disk
  /// is then for the optimizer only.
  Limit nvme_parameter_disk;
};

struct FitInput {
  MemoryInput memory;
  int ranks_per_host = 1;       ///< ranks that share `host` and the disks
  int64_t new_checkpoints = 0;  ///< on the disk at a time, besides those already there
  int64_t new_models = 0;       ///< the same for models, besides model/
};

struct Misfit {
  std::string what;  ///< "2 ranks need 3.1 GiB of host memory, the container's memory.max is ..."
  /// The first change that makes it fit according to the model, or that no change does.
  std::string remedy;
};

/// Everything that does not fit. Empty if it fits, as far as the limits are known.
std::vector<Misfit> check_fit(const FitInput& input, const Limits& limits);

/// "1.5 GiB".
std::string show_bytes(int64_t bytes);

}  // namespace dsj::plan
