// spec.initializers: users' images that fetch the model and the data to the job's volume before
// ranks start. The reader turns them into init containers of the worker template, so code that
// renders pods handles only containers. docs/cluster.md has the contract with the image. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "job/training_args.h"

namespace dsj::jobspec {

class FieldReader;

/// "model" or "dataset" if spec.initializers made the init container of that name, else empty.
std::string initializer_of(const std::string& container_name);

/// Whether pods do not share one copy: the volume of `target` in the worker's container belongs to
/// a pod or to a node. False if there is no such volume.
bool fetched_by_every_pod(const nlohmann::json& worker_template, const std::string& target);
/// The training argument with the path of this initializer's result; "" for another name.
std::string initializer_target(const std::string& name, const TrainingArgs& training);
/// Where worker `worker` stores incomplete data: beside the target, on the same volume.
std::string staging_path(const std::string& target, int worker);

/// Inputs of read_initializers() besides the spec.
struct InitializersInput {
  const TrainingArgs& training;
  bool in_part = false;     ///< an unread DeepSpeedJobTemplate may have the volumes
  bool in_cluster = false;  ///< false: checks only the fields
};

/// Checks spec.initializers and appends their containers to `worker_template`. Refuses an init
/// container of the template with the same name.
void read_initializers(const nlohmann::json& spec, const InitializersInput& in,
                       nlohmann::json& worker_template, FieldReader& reader);

}  // namespace dsj::jobspec
