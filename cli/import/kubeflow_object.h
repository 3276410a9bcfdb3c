// The common content of the three kinds. Internal to kubeflow.cc.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/import/kubeflow_kind.h"
#include "common/result.h"

namespace dsj::jobimport {

struct KubeflowObject {
  std::string name;
  nlohmann::json metadata;  ///< labels, annotations, namespace
  std::optional<int64_t> replicas, slots;
  nlohmann::json pod_template = nlohmann::json::object();
  size_t container = 0;                            ///< index in pod_template.spec.containers
  std::vector<std::string> words;                  ///< command and args
  nlohmann::json spec = nlohmann::json::object();  ///< policies of a DeepSpeedJob
  std::vector<std::string> left_open, not_carried;
};

/// Errors: BadInput for another apiVersion or kind, no template of replicas, or no container.
Result<KubeflowObject> read_kubeflow(KubeflowKind kind, const nlohmann::json& object,
                                     const std::string& source);

}  // namespace dsj::jobimport
