// torchrun's words for a number of ranks: --nproc_per_node auto, gpu, cpu. Internal to jobspec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::jobspec {

/// What a machine has. `root`: of its file system; tests name another.
struct Processors {
  int64_t cpus = 1;  ///< os.cpu_count()
  int64_t gpus = 0;  ///< the NVIDIA driver's
};
Processors processors(const std::string& root = "/");

/// cpu: the CPUs; gpu: the GPUs; auto: the GPUs, or the CPUs where there are none. nullopt: another word,
/// or "gpu" without one.
std::optional<int64_t> ranks_of(const std::string& word, const Processors& has);
inline std::optional<int64_t> ranks_here(const std::string& word) {
  return ranks_of(word, processors());
}

}  // namespace dsj::jobspec
