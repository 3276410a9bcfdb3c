// launcher: Command: the user's own program in the worker's container, one process per rank. In a
// cluster the kubelet reads these fields; `dsj run` reads them here in the same way. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dsj::jobspec {

/// The container "worker" of spec.workers.template; null if there is none.
const nlohmann::json& worker_container(const nlohmann::json& worker_template);

/// The GPUs that a worker requests: the larger of requests and limits.
struct WorkerGpus {
  int64_t whole = 0;     ///< nvidia.com/gpu
  int64_t parts = 0;     ///< of divided or shared GPUs: nvidia.com/mig-*, nvidia.com/*.shared
  std::string other;     ///< the name of another accelerator, such as "amd.com/gpu"; may be empty
  bool claimed = false;  ///< it has resource claims, whose devices are unknown
  int64_t all() const { return whole + parts; }
  /// GPUs that one process sees. CUDA shows it one part of a divided GPU, and no other GPU; shares
  /// may be of one GPU.
  int64_t seen() const { return parts > 0 ? 1 : whole; }
  bool operator==(const WorkerGpus&) const = default;
};
WorkerGpus worker_gpus(const nlohmann::json& worker_template);

/// Resources for an init container: those of the worker, without devices. They cost the pod nothing, because a pod
/// requests the larger of both; a LimitRange accepts both or neither; a Guaranteed pod stays Guaranteed.
nlohmann::json worker_resources(const nlohmann::json& worker_template);

/// The worker container's `command`, then its `args`, as written. Empty if it has no command.
std::vector<std::string> user_command(const nlohmann::json& worker_template);

using Lookup = std::function<const std::string*(const std::string& name)>;
/// Replaces $(NAME) by the result of `lookup`; an unknown name is unchanged. $$( becomes $(.
std::string expand_references(const std::string& text, const Lookup& lookup);

/// The worker container's `env`, in order. Each value is expanded with earlier ones and with
/// `lookup`. Reads only plain values.
std::vector<std::pair<std::string, std::string>> user_environment(
    const nlohmann::json& worker_template, const Lookup& lookup);

}  // namespace dsj::jobspec
