// Links measured over TCP, on threads of their own, by Boost.Asio. A peer connects, shows the key of the one
// it sends to, and sends bytes without a meaning; the receiver answers with the rate. A transfer is bounded in
// bytes and in time, whatever the peer does.
#pragma once

#include <memory>
#include <string>

#include "agent/gang/link_meter.h"
#include "common/result.h"

namespace dsj::agent {

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
