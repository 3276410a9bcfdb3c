// Chooses whether a rank computes on a GPU or on the CPU, and gives the reason. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::cuda {

/// The job's request: training.device, or GPUs among the resources of its workers (job_file.h).
enum class Wanted {
  Any,  ///< a GPU if there is one
  Cpu,
  Cuda,  ///< a GPU; otherwise an error
};
/// "auto" or unset, "cpu", "cuda".
Wanted wanted_of(const std::optional<std::string>& device);

/// The GPUs of a machine.
struct Found {
  int devices = 0;      ///< visible to this process
  std::string lacking;  ///< reason if there are none: "no CUDA driver (libcuda.so.1) is here"
  /// Each device's compute capability, 90 for 9.0, or 0 if unknown; may be empty.
  std::vector<int> capabilities = {};
  /// The reason why libdsj_cuda.so cannot be used, or empty. Checked only if there are devices.
  std::string plugin_problem;
  bool plugin_there = true;  ///< whether its file exists
};

struct Choice {
  std::optional<int> gpu;  ///< the GPU's index; unset means the CPU
  std::string because;     ///< "training.device is cpu"
  bool is_a_loss = false;  ///< there are GPUs that the build cannot use: warn
};

/// The lowest compute capability that our kernels support (engine/cuda/plugin/CMakeLists.txt).
inline constexpr int kOldestCapability = 80;
/// The oldest driver, in CUDA's numbering, that libtorch 2.11's CUDA runtime (CUDA 13) supports.
inline constexpr int kOldestDriver = 13000;

/// One GPU per rank: rank `local_rank` of a machine gets GPU `local_rank`. Environment: the job
/// wants a GPU and this rank has none; or there are GPUs and the plugin, but it cannot be loaded
/// (using the CPU would be a silent downgrade). A GPU too old for our kernels does not count.
Result<Choice> choose(Wanted wanted, const Found& found, int local_rank);

}  // namespace dsj::cuda
