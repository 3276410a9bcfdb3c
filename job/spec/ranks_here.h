// torchrun's words for a number of ranks: --nproc_per_node auto, gpu, cpu. Internal to jobspec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::jobspec {

/// The processors of a machine. `root` of its file system, for tests.
struct Processors {
  int64_t cpus = 1;  ///< os.cpu_count()
  int64_t gpus = 0;  ///< from the NVIDIA driver
};
Processors processors(const std::string& root = "/");

/// cpu: the number of CPUs; gpu: of GPUs; auto: of GPUs, or of CPUs without GPUs. nullopt for
/// another word, or for "gpu" without GPUs.
std::optional<int64_t> ranks_of(const std::string& word, const Processors& has);
inline std::optional<int64_t> ranks_here(const std::string& word) {
  return ranks_of(word, processors());
}

}  // namespace dsj::jobspec
