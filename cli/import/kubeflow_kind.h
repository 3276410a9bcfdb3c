// The jobs of Kubeflow's operators that can be imported.
#pragma once

namespace dsj::jobimport {

enum class KubeflowKind { PyTorchJob, MPIJob, TrainJob };

/// As the object's "kind" has it.
const char* name_of(KubeflowKind kind);

}  // namespace dsj::jobimport
