// What a path in the worker's container lies on, and who else sees it: one rule for the targets of spec.initializers and
// for training.outputDir. Internal to jobspec. Pure.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "job/training_args.h"

namespace dsj::jobspec {

class FieldReader;

/// `path` without "//", "/./", "/../" and a slash at its end.
std::string normal_path(const std::string& path);

/// The mount of the container "worker" with the longest path that holds a path, and its volume.
struct Mounted {
  const nlohmann::json* mount = nullptr;   ///< null: no mount holds it
  size_t index = 0;                        ///< in volumeMounts
  const nlohmann::json* volume = nullptr;  ///< null: the template has no volume of that name
};
/// Lives as long as `worker_template`. `path` is normal.
Mounted mounted(const nlohmann::json& worker_template, const std::string& path);

/// Why nobody can write to a volume: "a configMap", "a persistentVolumeClaim with readOnly: true". Empty: nothing is against it.
std::string unwritable(const nlohmann::json& volume);
/// Whether each pod, or each node, has a volume of its own.
bool is_of_pod_or_node(const nlohmann::json& volume);

/// Checks where training.outputDir lies. An error if it cannot be written, a warning if it goes with its pod.
void check_output_dir(const nlohmann::json& worker_template, const TrainingArgs& training,
                      int workers, FieldReader& reader);

}  // namespace dsj::jobspec
