// A spec as a cluster takes it, with all its findings: those of `dsj validate`, without looking at
// files. Pure. The admission webhook and the operator both call it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "job/spec/job.h"

namespace dsj::jobspec {

struct ClusterSpec {
  Job job;
  /// spec.elastic: the numbers of workers with which the job can train (elastic.h); else empty.
  std::vector<int> sizes;
  /// Findings of the job and of its ds_config; of the job alone if `config_known` is false.
  dsconfig::Resolution resolution;
  bool config_known = true;
};

/// `config_text`: the text from the ConfigMap that deepspeed.configFrom names; nullopt: not read.
ClusterSpec check_cluster_spec(const std::string& name, const nlohmann::json& spec,
                               const std::optional<std::string>& config_text);

/// "spec.training.x: message (hint)".
std::string to_sentence(const dsconfig::Finding& finding);

}  // namespace dsj::jobspec
