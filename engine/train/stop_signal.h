// SIGTERM and SIGINT. Before the first step the process ends at once with kExitPreempted: there is
// nothing to save. From then on a signal sets a flag that the loop reads between steps.
#pragma once

namespace dsj::train {

/// Installs the handlers and ignores SIGPIPE. Call once.
void install_stop_signals();
/// From now on a signal sets the flag: the run has state worth saving.
void defer_stops();
bool stop_requested();

}  // namespace dsj::train
