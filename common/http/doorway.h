// Which of those who have said hello to a TLS server shakes hands next. Pure: the time comes in.
//
// A handshake costs the server a signature, and its peer waits for it only so long. A server too slow for all of
// them that takes whoever has waited longest takes those who are about to give up, or have: it signs for nobody,
// each comes again, and none ever gets in. Therefore
//   - few shake hands at a time, so that what has begun ends soon;
//   - of those who wait, the one who came last is next: it has the most patience left, and who has waited in vain
//     comes again and is then the last;
//   - an address with fewer handshakes under way goes before one with more, so that a flood from one address does
//     not close the door to others;
//   - a peer that dawdles counts for one turn only.
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
  int at_once = 64;                      ///< handshakes
  std::chrono::milliseconds turn{3000};  ///< for so long one of them counts
};

template <typename Guest>
class Doorway {
 public:
  using Time = std::chrono::milliseconds;  ///< of a clock that never goes back
  using Ticket = int64_t;
  explicit Doorway(DoorLimits limits = {}) : limits_(limits) {}

  /// Somebody from the address `from` has said hello, and waits from now on.
  Ticket came(Guest guest, const std::string& from) {
    ++last_;
    from_.emplace(last_, from);
    change(from, [&](Address& address) { address.waiting.emplace(last_, std::move(guest)); });
    return last_;
  }

  /// Who shakes hands now; it counts until left(). nullopt: nobody waits, or enough are at it. Costs the
  /// logarithm of those who wait.
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

  /// It waits no more, or its handshake is over. Nothing, if that was said before.
  void left(Ticket ticket) {
    if (begun_.contains(ticket)) return count_no_more(ticket);
    const auto known = from_.find(ticket);
    if (known == from_.end()) return;
    change(known->second, [&](Address& address) { address.waiting.erase(ticket); });
    from_.erase(known);
  }

  /// When next() may have somebody though nobody left. nullopt: nobody waits, or it has somebody now.
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

  /// Changes what is known of an address, and its place in the order.
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
  std::map<std::string, Address> addresses_;  ///< of those who wait or count
  std::map<Ticket, std::string> from_;        ///< the same, by ticket
  std::set<Place> order_;         ///< addresses of which somebody waits; who is next is first
  std::map<Ticket, Time> begun_;  ///< never more than `at_once`
};

}  // namespace dsj
