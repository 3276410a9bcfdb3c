// Names that Kueue reads and writes on pods, as far as the operator uses them.
#pragma once

namespace dsj::op {

/// On every pod that Kueue manages, until the pod is replaced in its group or the group is
/// finished.
inline constexpr char kKueueFinalizer[] = "kueue.x-k8s.io/managed";
/// "false" on one pod of a group: the group is finished as soon as all of its pods have ended.
inline constexpr char kKueueRetriable[] = "kueue.x-k8s.io/retriable-in-group";
/// Condition of a pod that Kueue deletes, for example to preempt it.
inline constexpr char kKueueTermination[] = "TerminationTarget";

}  // namespace dsj::op
