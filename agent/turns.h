// The common part of the loops around an Agent: reading the clock and waiting.
// Tested by: tests/run/fake/run_test.cc
#pragma once

#include "agent/agent.h"

namespace dsj::agent {

/// The monotonic clock.
Time steady_time();
/// Reads the wall clock.
int64_t milliseconds_since_1970();

/// Sleeps until a signal, a rank's event or a beat arrives, a report can be written, or `until`.
void wait_for_events(const Agent& agent, int signal_fd, const AgentPorts& ports, Time until);

}  // namespace dsj::agent
