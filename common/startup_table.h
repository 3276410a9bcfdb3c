// A table of startup times, from the lines of the processes (startup_trace.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::startup {

/// The startup of `attempt`, one line per stage: process, stage, its start after the start of the
/// earliest process, its duration, and its processor time, all in milliseconds. It shows dsj (for
/// the earliest attempt among the lines), the agent of worker 0, rank 0, and the rank that finished
/// last. The last line has the totals of wall time and of all processes' processor time. nullopt if
/// fewer than `ranks` ranks have reported this attempt. Ignores other lines.
std::optional<std::string> table(const std::string& lines, int64_t attempt, int ranks);

}  // namespace dsj::startup
