// The preStop hook of a worker's container: the agent is process 1 there, and the kernel drops a signal
// to process 1 that it neither handles nor blocks. A SIGTERM that comes while the agent is being loaded would
// be lost, and the pod would stay for all of its grace period.
#pragma once

#include <chrono>
#include <string>

namespace dsj::agent {

/// Waits until the process whose status file this is (/proc/PID/status, proc(5)) runs a program of this one's name and blocks
/// SIGTERM, as the agent does before it does anything else, or has ended. The container's runtime, which is there before, blocks
/// signals for moments, too. False: not within `patience`.
bool await_signals_ready(const std::string& status_path, std::chrono::milliseconds patience);

}  // namespace dsj::agent
