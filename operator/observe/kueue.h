// What Kueue writes on pods, and reads there, as far as this operator has to do with it.
#pragma once

namespace dsj::op {

/// Of every pod that Kueue manages: it stays until its group has another in its place, or is finished.
inline constexpr char kKueueFinalizer[] = "kueue.x-k8s.io/managed";
/// "false" on one pod of a group: once none of its pods is left to end, the group is finished.
inline constexpr char kKueueRetriable[] = "kueue.x-k8s.io/retriable-in-group";
/// A condition of a pod that Kueue deletes, above all one that it preempts.
inline constexpr char kKueueTermination[] = "TerminationTarget";

}  // namespace dsj::op
