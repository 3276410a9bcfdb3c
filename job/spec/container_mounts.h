// The volume of a path in the worker's container, and which pods share it: one rule for the targets
// of spec.initializers and for training.outputDir. Internal to jobspec. Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/training_args.h"

namespace dsj::jobspec {

class FieldReader;

/// `path` without "//", "/./", "/../" and a trailing slash.
std::string normal_path(const std::string& path);

/// The mount of the container "worker" with the longest path above a given path, and its volume.
struct Mounted {
  const nlohmann::json* mount = nullptr;   ///< null if no mount contains the path
  size_t index = 0;                        ///< in volumeMounts
  const nlohmann::json* volume = nullptr;  ///< null if the template has no such volume
};
/// Valid as long as `worker_template`. `path` is normal.
Mounted mounted(const nlohmann::json& worker_template, const std::string& path);

/// Why a volume is read-only: "a configMap", "a persistentVolumeClaim with readOnly: true"; else empty.
std::string unwritable(const nlohmann::json& volume);
/// Whether each pod, or each node, has its own volume.
bool is_of_pod_or_node(const nlohmann::json& volume);

/// Checks the volume of training.outputDir. Error: it is read-only. Warning: it is deleted with its pod.
/// `read_only_root`: whether a container that does not set it has a read-only root; nullopt: unknown.
void check_output_dir(const nlohmann::json& worker_template, const TrainingArgs& training,
                      int workers, std::optional<bool> read_only_root, FieldReader& reader);

}  // namespace dsj::jobspec
