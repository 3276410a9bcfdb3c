// The port by which an agent measures its node's link to a peer's: over TCP (tcp_link_meter.h), or the full
// fake of the tests. The agent's one thread polls it; nothing here blocks it.
// Tested by: tests/agent/gang/tcp_link_meter_test.cc, tests/agent/agent_test.cc
#pragma once

#include <optional>

#include "agent/gang/messages.h"

namespace dsj::agent {

class LinkMeter {
 public:
  virtual ~LinkMeter() = default;
  /// Where peers reach this one.
  virtual LinkPlace place() const = 0;
  /// Begins a transfer to a peer. One at a time; what a later call overtakes is never told.
  virtual void send(const LinkOrder& order) = 0;
  /// What the last transfer came to, once.
  virtual std::optional<LinkRate> take() = 0;
  /// Readable when take() has something; -1: no such descriptor.
  virtual int ready_fd() const = 0;
};

}  // namespace dsj::agent
