// Conditions Ready, Reconciling and Stalled, from which Flux, kpt, cli-utils' kstatus and Argo CD know how a job is. They
// repeat what the phase and the other conditions say, by the rules that kstatus has for batch/v1's Job: a job that runs,
// is suspended as asked or is complete is Current; one that failed or whose spec is refused is Failed; else InProgress.
// Reconciling and Stalled are there only while they are True, never both.
#pragma once

#include <string>

#include "operator/observe/conditions.h"

namespace dsj::op {

inline constexpr char kReady[] = "Ready";
inline constexpr char kReconciling[] = "Reconciling";

/// Sets the three. `reason`: status.reason.
void set_readiness(const std::string& phase, const std::string& reason, int64_t generation,
                   Time now, Conditions& conditions);
/// A pass over the job was broken off (controller.h).
void set_broken_off(const std::string& why, int64_t generation, Time now, Conditions& conditions);

}  // namespace dsj::op
