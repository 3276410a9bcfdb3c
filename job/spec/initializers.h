// spec.initializers: images of the user's that fetch the model and the data to the job's volume before
// ranks start. The reader makes them init containers of the worker template, so whoever renders a pod
// knows containers only. docs/cluster.md has the contract with the image. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "job/training_args.h"

namespace dsj::jobspec {

class FieldReader;

/// "model" or "dataset" if an init container of that name is one of spec.initializers, else empty.
std::string initializer_of(const std::string& container_name);

/// True if several pods do not see one copy: the volume that holds `target` in the worker's container
/// belongs to a pod or to a node. False if there is no such volume.
bool fetched_by_every_pod(const nlohmann::json& worker_template, const std::string& target);
/// The training argument that says where this initializer's result lies; "" for another name.
std::string initializer_target(const std::string& name, const TrainingArgs& training);
/// Where worker `worker` puts what is not whole yet: beside the target, on the same volume.
std::string staging_path(const std::string& target, int worker);

/// What read_initializers() takes beside the spec.
struct InitializersInput {
  const TrainingArgs& training;
  bool in_part = false;  ///< a DeepSpeedJobTemplate that nobody has read yet may bring the volumes
  bool in_cluster = false;  ///< else the fields alone are checked
};

/// Checks spec.initializers and appends their containers to `worker_template`. Refuses an init container
/// of the template that has the name of one.
void read_initializers(const nlohmann::json& spec, const InitializersInput& in,
                       nlohmann::json& worker_template, FieldReader& reader);

}  // namespace dsj::jobspec
