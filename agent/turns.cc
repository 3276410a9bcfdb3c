#include "agent/turns.h"

#include <poll.h>

#include <algorithm>
#include <chrono>

namespace dsj::agent {

Time steady_time() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

int64_t milliseconds_since_1970() {
  return std::chrono::duration_cast<Time>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void wait_for_events(const Agent& agent, int signal_fd, const AgentPorts& ports, Time until) {
  std::vector<pollfd> entries = {{signal_fd, POLLIN, 0}};
  for (int fd : agent.event_fds()) entries.push_back({fd, POLLIN, 0});
  if (ports.client) entries.push_back({ports.client->ready_fd(), POLLIN, 0});
  if (ports.links) entries.push_back({ports.links->ready_fd(), POLLIN, 0});
  if (ports.reports.flush()) entries.push_back({ports.reports.fd(), POLLOUT, 0});
  const auto something = [&](Time end) {
    const auto left = std::max(Time(0), end - steady_time());
    return poll(entries.data(), entries.size(), static_cast<int>(left.count())) != 0;
  };
  if (!ports.server) {
    something(until);
    return;
  }
  // Beats of a large gang are processed together (transport.h).
  const Time hears = agent.hears_from();
  if (hears > steady_time() && (something(std::min(until, hears)) || until <= hears)) return;
  entries.push_back({ports.server->ready_fd(), POLLIN, 0});
  something(until);
}

}  // namespace dsj::agent
