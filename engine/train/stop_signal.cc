#include "engine/train/stop_signal.h"

#include <unistd.h>

#include <csignal>

#include "job/contract.h"

namespace dsj::train {
namespace {
volatile std::sig_atomic_t requested = 0, deferred = 0;

void on_stop(int) {
  if (deferred == 0) _exit(contract::kExitPreempted);
  requested = 1;
}
}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void defer_stops() {
  deferred = 1;
}

bool stop_requested() {
  return requested != 0;
}

}  // namespace dsj::train
