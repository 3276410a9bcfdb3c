// Points in time: in the API's format (RFC 3339, UTC), and as the values that reconcile computes
// with.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace dsj::op {

using Milliseconds = std::chrono::milliseconds;
using Seconds = std::chrono::seconds;
using Time = std::chrono::sys_time<Milliseconds>;

/// "2026-01-31T12:00:00Z", or with ".250" if there are milliseconds.
std::string to_text(Time time);
/// nullopt if the text does not have this format.
std::optional<Time> time_from_text(const std::string& text);

}  // namespace dsj::op
