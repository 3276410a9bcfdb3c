// The jobs of Kubeflow's operators that can be imported.
#pragma once

namespace dsj::jobimport {

enum class KubeflowKind { PyTorchJob, MPIJob, TrainJob };

}  // namespace dsj::jobimport
