#include "agent/gang/session_state.h"

#include <numeric>

#include "common/check.h"

namespace dsj::agent {

Session::Session(const SessionConfig& config_, Time now)
    : config(config_),
      attempt(config_.last_attempt),
      phase_since(now),
      last_progress(now),
      last_now(now),
      budget(config_.budget),
      workers(config_.workers) {
  DSJ_CHECK(config_.workers >= 1, "a gang of %d workers", config_.workers);
}

int world_size(const Session& s) {
  return std::accumulate(s.slots.begin(), s.slots.end(), 0);
}

}  // namespace dsj::agent
