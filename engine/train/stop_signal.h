// Handles SIGTERM and SIGINT. Before the first step the process exits at once with kExitPreempted:
// there is nothing to save. After that a signal sets a flag that the loop reads between steps.
#pragma once

namespace dsj::train {

/// Installs the handlers and ignores SIGPIPE. Call once.
void install_stop_signals();
/// Makes signals set the flag: the run has state worth saving.
void defer_stops();
bool stop_requested();

}  // namespace dsj::train
