// A spec as a cluster takes it, with all that is wrong with it: what `dsj validate` says, without
// looking at files. Pure; the admission webhook and the operator both ask this.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "common/jobspec/job.h"

namespace dsj::jobspec {

struct ClusterSpec {
  Job job;
  /// Findings of the job and of its ds_config. Without the ds_config (`config_known` false): of the
  /// job alone.
  dsconfig::Resolution resolution;
  bool config_known = true;
};

/// `config_text`: of the ConfigMap that deepspeed.configFrom names; nullopt: not read.
ClusterSpec check_cluster_spec(const std::string& name, const nlohmann::json& spec,
                               const std::optional<std::string>& config_text);

/// "spec.training.x: message (hint)".
std::string to_sentence(const dsconfig::Finding& finding);

/// Fields of spec that a job keeps for its life, as JSON pointers into the object.
const std::vector<std::string>& immutable_fields();

}  // namespace dsj::jobspec
