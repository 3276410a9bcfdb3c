// Jobs of Kubeflow's operators as DeepSpeedJobs: PyTorchJob (kubeflow.org/v1), MPIJob
// (kubeflow.org/v2beta1), TrainJob (trainer.kubeflow.org/v1alpha1). The object gives workers, pod
// template and policies; its container's command gives the training arguments, as launcher.h reads
// a line. Every field is translated, or named with its reason.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/import/imported.h"
#include "cli/import/kubeflow_kind.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

struct KubeflowOptions {
  /// The program stays the container's own (launcher: Command) instead of this engine.
  bool keep_program = false;
  /// Of this machine: becomes the job's ds_config. Empty: the command's --deepspeed, where it lies
  /// in a ConfigMap that the template mounts or is a file here.
  std::string ds_config;
};

/// BadInput: another kind or version, no container, a ds_config that cannot be read.
Result<Imported> import_kubeflow(Files& files, KubeflowKind kind, const nlohmann::json& object,
                                 const std::string& source, const KubeflowOptions& options);

}  // namespace dsj::jobimport
