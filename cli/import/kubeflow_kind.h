// The jobs of Kubeflow's operators that can be imported.
#pragma once

namespace dsj::jobimport {

enum class KubeflowKind { PyTorchJob, MPIJob, TrainJob };

/// The object's "kind".
const char* name_of(KubeflowKind kind);

}  // namespace dsj::jobimport
