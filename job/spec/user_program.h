// launcher: Command: the user's own program in the worker's container, one process per rank. In a
// cluster the kubelet reads these fields; here they are read in the same way. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dsj::jobspec {

/// The container "worker" of spec.workers.template; null: none.
const nlohmann::json& worker_container(const nlohmann::json& worker_template);

/// What a worker asks for, as requests or limits: the larger of the two.
struct WorkerGpus {
  int64_t whole = 0;     ///< nvidia.com/gpu
  int64_t parts = 0;     ///< of divided or shared GPUs: nvidia.com/mig-*, nvidia.com/*.shared
  std::string other;     ///< the name of another accelerator, as "amd.com/gpu"; empty: none
  bool claimed = false;  ///< it has resource claims, which may bring anything
  int64_t all() const { return whole + parts; }
  /// GPUs that one process sees. CUDA shows it one part of a divided GPU, and no other GPU beside that; shares may be of
  /// one GPU.
  int64_t seen() const { return parts > 0 ? 1 : whole; }
  bool operator==(const WorkerGpus&) const = default;
};
WorkerGpus worker_gpus(const nlohmann::json& worker_template);

/// The resources of an init container beside it: as much as it has itself, but for devices. That costs the pod nothing, because
/// a pod asks for the larger of both; a LimitRange that takes the one takes the other; a Guaranteed pod stays one.
nlohmann::json worker_resources(const nlohmann::json& worker_template);

/// That container's `command`, then its `args`, as written. Empty: it has no command.
std::vector<std::string> user_command(const nlohmann::json& worker_template);

using Lookup = std::function<const std::string*(const std::string& name)>;
/// Replaces $(NAME) by what `lookup` finds; an unknown name stays as it is. $$( becomes $(.
std::string expand_references(const std::string& text, const Lookup& lookup);

/// That container's `env`, in order. Each value is expanded by those before it and by `lookup`.
/// Only plain values are read.
std::vector<std::pair<std::string, std::string>> user_environment(
    const nlohmann::json& worker_template, const Lookup& lookup);

}  // namespace dsj::jobspec
