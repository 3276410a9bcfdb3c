// Links between nodes that a test plays.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/links/link_meter.h"

namespace dsj::agent {

/// A network: what each node can send and receive.
struct PlayedNetwork {
  std::map<std::string, int64_t> bytes_per_second;  ///< [node]; others: a gigabyte
  int transfers = 0;

  int64_t rate(const std::string& from, const std::string& to) {
    ++transfers;
    const auto of = [&](const std::string& node) {
      const auto found = bytes_per_second.find(node);
      return found == bytes_per_second.end() ? int64_t(1'000'000'000) : found->second;
    };
    return std::min(of(from), of(to));
  }
};

/// The full fake of link_meter.h. A node's name is its address, too.
class PlayedLinks final : public LinkMeter {
 public:
  PlayedLinks(std::shared_ptr<PlayedNetwork> network, const std::string& node, bool moves)
      : network_(std::move(network)), place_{node, node, 1, "key of " + node, moves} {}
  LinkPlace place() const override { return place_; }
  void send(const LinkOrder& order) override {
    rate_ = LinkRate{.round = order.round};
    if (order.key == "key of " + order.address) {
      rate_->bytes_per_second = network_->rate(place_.node, order.address);
    } else {
      rate_->problem = order.address + ": no answer";
    }
  }
  std::optional<LinkRate> take() override { return std::exchange(rate_, std::nullopt); }
  int ready_fd() const override { return -1; }

 private:
  const std::shared_ptr<PlayedNetwork> network_;
  const LinkPlace place_;
  std::optional<LinkRate> rate_;
};

}  // namespace dsj::agent
