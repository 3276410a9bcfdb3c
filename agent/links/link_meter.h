// The port through which an agent measures its node's link to a peer, and its implementation over
// TCP, on its own threads, with Boost.Asio. The sender connects, presents the receiver's key, and
// sends meaningless bytes; the receiver answers with the rate. A transfer has limits in bytes and
// in time, whatever the peer does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/wire/messages.h"
#include "common/result.h"

namespace dsj::agent {

/// A transfer as measured by its receiver.
struct Transfer {
  int64_t bytes = 0, microseconds = 0;  ///< in total
  int64_t slice_bytes = 0;
  std::vector<int64_t> slices;  ///< microseconds of each complete slice
};

/// Bytes per second, at least 1. With enough slices it is the rate of the median slice: a pause of
/// a busy machine affects few slices, a slow link all of them.
int64_t rate_of(const Transfer& transfer);

/// The port; tests use a full fake. The agent's only thread polls it; no call blocks.
class LinkMeter {
 public:
  virtual ~LinkMeter() = default;
  /// The address and key for peers of this agent.
  virtual LinkPlace place() const = 0;
  /// Begins a transfer to a peer. One at a time; the result of a transfer that a later call
  /// replaces is dropped.
  virtual void send(const LinkOrder& order) = 0;
  /// The result of the last transfer, returned once.
  virtual std::optional<LinkRate> take() = 0;
  /// Readable if take() has something; -1 if there is no descriptor.
  virtual int ready_fd() const = 0;
};

struct LinkLimits {
  int64_t bytes = int64_t(64) << 20;  ///< size of a transfer
  Time receiving{500};                ///< from its first byte on
  Time sending{3000};                 ///< including connection and answer
};

class TcpLinkMeter final : public LinkMeter {
 public:
  /// Listens on any free port of `address`. `moves`: see LinkPlace.
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
