// Conditions Ready, Reconciling and Stalled, from which Flux, kpt, cli-utils' kstatus and Argo CD
// derive a job's health. They follow kstatus' rules for batch/v1 Jobs: a job that runs, is
// suspended or is complete is Current; one that failed or whose spec is refused is Failed; all
// others are InProgress. Reconciling and Stalled exist only while they are True, and never both.
#pragma once

#include <string>

#include "operator/observe/conditions.h"

namespace dsj::op {

inline constexpr char kReady[] = "Ready";
inline constexpr char kReconciling[] = "Reconciling";

/// Sets the three conditions. `reason` is status.reason.
void set_readiness(const std::string& phase, const std::string& reason, int64_t generation,
                   Time now, Conditions& conditions);
/// Sets them after a pass over the job threw (controller.h).
void set_broken_off(const std::string& why, int64_t generation, Time now, Conditions& conditions);

}  // namespace dsj::op
