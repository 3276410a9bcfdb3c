// What every loop around an Agent does between its turns: read the clock and wait.
#pragma once

#include "agent/agent.h"

namespace dsj::agent {

/// Monotonic.
Time steady_time();

/// Sleeps until a signal, an event of a rank, a beat or an answer came, a report can be written, or
/// `until`.
void wait_for_events(const Agent& agent, int signal_fd, const AgentPorts& ports, Time until);

}  // namespace dsj::agent
