// What operator and agents share about the health of a node: environment names, and the exit code
// and the reason of an agent that found its node unfit.
// Tested by: tests/operator/unhealthy_nodes_test.cc, tests/run/fake/pod_run_test.cc
#pragma once

namespace dsj::contract {

/// Bytes that the container requests, from the downward API; 0 if none.
inline constexpr char kEnvMemoryRequest[] = "DSJ_MEMORY_REQUEST";
/// GPUs (nvidia.com/gpu) that the container requests; unset if none.
inline constexpr char kEnvGpus[] = "DSJ_GPUS";

/// The node of the pod, from the downward API.
inline constexpr char kEnvNode[] = "DSJ_NODE";

/// Exit code and reason of an agent whose ranks must not start on its node. The same pod may work
/// on another node.
inline constexpr int kExitUnhealthyNode = 88;
inline constexpr char kReasonUnhealthyNode[] = "UnhealthyNode";
/// On a pod: the unfit nodes that it avoids, "n1,n2".
inline constexpr char kAnnotationAvoids[] = "training.dsj.dev/avoided-nodes";

}  // namespace dsj::contract
