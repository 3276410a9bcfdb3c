#include "engine/train/stop_signal.h"

#include <csignal>

namespace dsj::train {
namespace {
volatile std::sig_atomic_t requested = 0;
}

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { requested = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool stop_requested() {
  return requested != 0;
}

}  // namespace dsj::train
