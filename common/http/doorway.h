// Chooses which waiting peer of a TLS server gets the next handshake. Pure: callers pass the time.
//
// A handshake costs the server a signature, and its peer waits for a limited time. An overloaded
// server that serves the longest-waiting peer first serves peers that are about to give up or have
// done so: the signatures are wasted, the peers retry, and none succeeds. Therefore
//   - only a few handshakes run at a time, so that those that have begun end soon;
//   - the peer that arrived last is served next: it has the most patience left, and a peer that
//     gave up comes again and is then the last;
//   - an address with fewer running handshakes precedes one with more, so that a flood from one
//     address does not lock out others;
//   - a slow handshake occupies its slot only for a limited time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace dsj {

struct DoorLimits {
  int at_once = 64;                      ///< concurrent handshakes
  std::chrono::milliseconds turn{3000};  ///< how long a handshake occupies a slot
};

template <typename Guest>
class Doorway {
 public:
  using Time = std::chrono::milliseconds;  ///< of a monotonic clock
  using Ticket = int64_t;
  explicit Doorway(DoorLimits limits = {}) : limits_(limits) {}

  /// A peer from address `from` has sent its hello and waits from now on.
  Ticket came(Guest guest, const std::string& from) {
    ++last_;
    from_.emplace(last_, from);
    change(from, [&](Address& address) { address.waiting.emplace(last_, std::move(guest)); });
    return last_;
  }

  /// The peer that may begin its handshake; it occupies a slot until left(). nullopt if no peer
  /// waits or all slots are taken. Cost: logarithmic in the number of waiting peers.
  std::optional<std::pair<Ticket, Guest>> next(Time now) {
    for (auto one = begun_.begin(); one != begun_.end();) {
      const auto [ticket, at] = *one++;
      if (now - at >= limits_.turn) count_no_more(ticket);
    }
    if (order_.empty() || begun_.size() >= static_cast<size_t>(limits_.at_once))
      return std::nullopt;
    const std::string from = std::get<std::string>(*order_.begin());
    std::optional<std::pair<Ticket, Guest>> next;
    change(from, [&](Address& address) {
      const auto newest = std::prev(address.waiting.end());
      next.emplace(newest->first, std::move(newest->second));
      address.waiting.erase(newest);
      ++address.under_way;
    });
    begun_.emplace(next->first, now);
    return next;
  }

  /// A peer stops waiting, or its handshake has ended. A second call has no effect.
  void left(Ticket ticket) {
    if (begun_.contains(ticket)) return count_no_more(ticket);
    const auto known = from_.find(ticket);
    if (known == from_.end()) return;
    change(known->second, [&](Address& address) { address.waiting.erase(ticket); });
    from_.erase(known);
  }

  /// When a slot becomes free by itself. nullopt if no peer waits, or if next() has one now.
  std::optional<Time> opens() const {
    if (order_.empty() || begun_.size() < static_cast<size_t>(limits_.at_once)) return std::nullopt;
    const auto earlier = [](const auto& a, const auto& b) { return a.second < b.second; };
    return std::ranges::min_element(begun_, earlier)->second + limits_.turn;
  }

 private:
  struct Address {
    int64_t under_way = 0;
    std::map<Ticket, Guest> waiting;
  };

  /// Changes the state of an address and updates its position in the order.
  template <typename Change>
  void change(const std::string& from, Change&& f) {
    Address& address = addresses_[from];
    order_.erase(place(address, from));
    f(address);
    if (!address.waiting.empty()) {
      order_.insert(place(address, from));
    } else if (address.under_way == 0) {
      addresses_.erase(from);
    }
  }
  using Place = std::tuple<int64_t, Ticket, std::string>;
  static Place place(const Address& address, const std::string& from) {
    return {address.under_way, address.waiting.empty() ? 0 : -address.waiting.rbegin()->first,
            from};
  }
  void count_no_more(Ticket ticket) {
    change(from_.at(ticket), [](Address& address) { --address.under_way; });
    from_.erase(ticket);
    begun_.erase(ticket);
  }

  DoorLimits limits_;
  Ticket last_ = 0;
  std::map<std::string, Address> addresses_;  ///< with peers that wait or occupy a slot
  std::map<Ticket, std::string> from_;        ///< the same, by ticket
  std::set<Place> order_;                     ///< addresses with waiting peers; the first is next
  std::map<Ticket, Time> begun_;              ///< at most `at_once`
};

}  // namespace dsj
