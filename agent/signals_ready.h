// The preStop hook of a worker's container. The agent is process 1 there, and the kernel drops a
// signal to process 1 that it neither handles nor blocks. A SIGTERM that arrives while the agent is
// being loaded would be lost, and the pod would stay for its whole grace period.
#pragma once

#include <chrono>
#include <string>

namespace dsj::agent {

/// Waits until the process with this status file (/proc/PID/status, proc(5)) has this program's
/// name and blocks SIGTERM, which the agent does first, or until it has ended. The name matters
/// because the container runtime, which is the process before, also blocks signals for moments.
/// Returns false after `patience`.
bool await_signals_ready(const std::string& status_path, std::chrono::milliseconds patience);

}  // namespace dsj::agent
