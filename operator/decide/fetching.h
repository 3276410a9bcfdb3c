// What the pods of a job with spec.initializers have fetched: condition DataReady, and a clock. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/observe/conditions.h"
#include "operator/observe/fetch_status.h"
#include "operator/observe/observed.h"

namespace dsj::op {

inline constexpr char kDataReady[] = "DataReady";

/// True while it fetches and is not on its way out.
bool is_fetching(const PodView& pod);

/// Condition DataReady of a gang. `newest`: each worker's newest pod, null if it has none. False: somebody
/// fetches. True: whoever has to fetch is through. Unknown: neither. nullopt: the job has no initializers.
/// Only status, reason and message are set.
std::optional<Condition> data_ready(const jobspec::Job& job,
                                    const std::vector<const PodView*>& newest);

/// From when startupDeadlineSeconds counts in a job that started at `start`: the last end of a fetch. nullopt:
/// not now, somebody fetches.
std::optional<Time> startup_from(const Conditions& conditions, Time start);

}  // namespace dsj::op
