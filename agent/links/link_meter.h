// The port by which an agent measures its node's link to a peer's, and the links over TCP, on threads of their own, by
// Boost.Asio. A peer connects, shows the key of the one it sends to, and sends bytes without a meaning; the receiver
// answers with the rate. A transfer is bounded in bytes and in time, whatever the peer does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/wire/messages.h"
#include "common/result.h"

namespace dsj::agent {

/// A transfer as its receiver saw it.
struct Transfer {
  int64_t bytes = 0, microseconds = 0;  ///< of all of it
  int64_t slice_bytes = 0;
  std::vector<int64_t> slices;  ///< microseconds of each whole slice
};

/// Bytes per second, at least 1. With enough slices it is that of the middle one: a pause of a busy
/// machine hits few of them, a slow link all.
int64_t rate_of(const Transfer& transfer);

/// The port; tests have a full fake. The agent's one thread polls it; nothing here blocks it.
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

struct LinkLimits {
  int64_t bytes = int64_t(64) << 20;  ///< of a transfer
  Time receiving{500};                ///< from its first byte on
  Time sending{3000};                 ///< with the connection and the answer
};

class TcpLinkMeter final : public LinkMeter {
 public:
  /// Listens on any free port of `address`. `moves`: LinkPlace.
  static Result<std::unique_ptr<TcpLinkMeter>> open(const std::string& address,
                                                    const std::string& node, bool moves,
                                                    const LinkLimits& limits = {});
  ~TcpLinkMeter() override;
  LinkPlace place() const override;
  void send(const LinkOrder& order) override;
  std::optional<LinkRate> take() override;
  int ready_fd() const override;

 private:
  struct State;
  explicit TcpLinkMeter(std::unique_ptr<State> state);
  const std::unique_ptr<State> state_;
};

}  // namespace dsj::agent
