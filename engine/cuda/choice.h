// Whether a rank computes on a GPU or on the CPU, and the sentence that says so. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/result.h"

namespace dsj::cuda {

/// What the job asks for: training.device, or GPUs among the resources of its workers (job_file.h).
enum class Wanted {
  Any,  ///< a GPU where there is one
  Cpu,
  Cuda,  ///< a GPU, or nothing
};
/// "auto" or unset, "cpu", "cuda".
Wanted wanted_of(const std::optional<std::string>& device);

/// What a machine has.
struct Found {
  int devices = 0;      ///< that the driver shows to this process
  std::string lacking;  ///< why there are none: "no CUDA driver (libcuda.so.1) is here"
  /// Of each device its compute capability, 90 for 9.0; empty, or 0: not known.
  std::vector<int> capabilities = {};
  /// Why libdsj_cuda.so cannot be used. Empty: it can. Looked for only where there are devices.
  std::string plugin_problem;
  bool plugin_there = true;  ///< its file
};

struct Choice {
  std::optional<int> gpu;  ///< its index; unset: the CPU
  std::string because;     ///< "training.device is cpu"
  bool is_a_loss = false;  ///< there are GPUs, and the build cannot use them: warn
};

/// The oldest GPUs that our kernels are made for (engine/cuda/plugin/CMakeLists.txt).
inline constexpr int kOldestCapability = 80;
/// The oldest driver, as CUDA numbers them, that the run-time library of libtorch 2.11 (CUDA 13) works with.
inline constexpr int kOldestDriver = 13000;

/// One GPU per rank: rank `local_rank` of a machine has GPU `local_rank`. Environment: the job
/// wants a GPU and this rank can have none; or the machine has GPUs and the plugin, and it cannot
/// be loaded: the CPU would be a silent loss. A GPU too old for our kernels counts as none.
Result<Choice> choose(Wanted wanted, const Found& found, int local_rank);

}  // namespace dsj::cuda
