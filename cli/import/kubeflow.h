// Imports jobs of Kubeflow's operators: PyTorchJob (kubeflow.org/v1), MPIJob
// (kubeflow.org/v2beta1), TrainJob (trainer.kubeflow.org/v1alpha1). The object determines
// workers, pod template and policies; the container's command the training arguments, which
// launcher.h parses. Every field is translated or reported with a reason.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/import/imported.h"
#include "cli/import/kubeflow_kind.h"
#include "common/files/files.h"
#include "common/result.h"

namespace dsj::jobimport {

struct KubeflowOptions {
  /// Keep the container's own program (launcher: Command) instead of this engine.
  bool keep_program = false;
  /// A file on this machine that becomes the job's ds_config. Empty: the command's --deepspeed,
  /// if it is in a ConfigMap that the template mounts or is a local file.
  std::string ds_config;
};

/// Errors: BadInput for another kind or version, no container, or an unreadable ds_config.
Result<Imported> import_kubeflow(Files& files, KubeflowKind kind, const nlohmann::json& object,
                                 const std::string& source, const KubeflowOptions& options);

}  // namespace dsj::jobimport
