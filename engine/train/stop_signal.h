// SIGTERM and SIGINT: before the first step the process ends at once with kExitPreempted, because
// there is nothing to save; from then on they are a flag that the loop reads between steps.
#pragma once

namespace dsj::train {

/// Installs the handlers; also ignores SIGPIPE. Call once.
void install_stop_signals();
/// From now on a request is a flag: the run has state worth saving.
void defer_stops();
bool stop_requested();

}  // namespace dsj::train
