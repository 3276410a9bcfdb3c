// Whether a run fits into what it may use, and the first change that would make it fit. Decides;
// reads nothing. Called by `dsj plan` and `dsj run` (cli/limits.h finds the limits).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/dsconfig/memory_model.h"

namespace dsj::dsconfig {

/// Bytes, and who says so. Unset: unknown, and nothing is refused for it.
struct Limit {
  std::optional<int64_t> bytes;
  std::string from = {};  ///< "the container's memory.max", "--memory"
};

struct Limits {
  Limit device;       ///< of one rank's accelerator; unset: the ranks compute in host memory
  Limit host;         ///< of one worker, for all its ranks
  Limit output_disk;  ///< free where the output goes
  Limit nvme_disk;    ///< free below nvme_path
  /// Free below offload_param's nvme_path where that is another than offload_optimizer's; then
  /// nvme_disk is for the optimizer alone.
  Limit nvme_parameter_disk;
};

struct FitInput {
  MemoryInput memory;
  int ranks_per_host = 1;       ///< ranks that share `host` and the disks
  int64_t new_checkpoints = 0;  ///< that lie on the disk at once, beyond those already there
};

struct Misfit {
  std::string what;  ///< "2 ranks need 3.1 GiB of host memory, the container's memory.max is ..."
  /// The first change, tried in the model, that makes it fit; or that none of them does.
  std::string remedy;
};

/// Everything that does not fit; empty: it fits, as far as the limits are known.
std::vector<Misfit> check_fit(const FitInput& input, const Limits& limits);

/// "1.5 GiB".
std::string show_bytes(int64_t bytes);

}  // namespace dsj::dsconfig
