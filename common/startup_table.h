// The table of a start, from the lines of its processes (startup_trace.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::startup {

/// The start of `attempt`, one line per stage: process, stage, when it began after the earliest
/// process, how long it took, the processor time in it, all in milliseconds. Shown are dsj (with
/// the earliest attempt among the lines), the agent of worker 0, rank 0, and the rank that ended
/// its last stage last. The last line has the whole: of the wall and of all processes' processor
/// time. nullopt: fewer than `ranks` ranks have told this attempt yet. Other lines are passed over.
std::optional<std::string> table(const std::string& lines, int64_t attempt, int ranks);

}  // namespace dsj::startup
