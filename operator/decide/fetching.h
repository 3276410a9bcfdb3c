// Condition DataReady of a job with spec.initializers, and the start of its startup deadline. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/observe/conditions.h"
#include "operator/observe/fetch_status.h"
#include "operator/observe/observed.h"

namespace dsj::op {

inline constexpr char kDataReady[] = "DataReady";

/// True while an initializer runs and the pod is not being deleted.
bool is_fetching(const PodView& pod);

/// Condition DataReady of a gang. `newest` has each worker's newest pod, or null if it has none.
/// False while a pod fetches, True once every pod that fetches has finished, else Unknown. Sets
/// only status, reason and message. nullopt if the job has no initializers.
std::optional<Condition> data_ready(const jobspec::Job& job,
                                    const std::vector<const PodView*>& newest);

/// When startupDeadlineSeconds begins in a job that started at `start`: at the end of the last
/// fetch. nullopt while a pod fetches.
std::optional<Time> startup_from(const Conditions& conditions, Time start);

}  // namespace dsj::op
