// SIGTERM and SIGINT as a flag that the loop reads between steps.
#pragma once

namespace dsj::train {

/// Installs the handlers; also ignores SIGPIPE. Call once.
void install_stop_signals();
bool stop_requested();

}  // namespace dsj::train
