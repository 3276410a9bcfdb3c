// The cluster's public token keys. They are fetched again when a token names an unknown key. The
// fetch runs on a thread of its own and nobody waits for it: a beat is simply sent again.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "agent/gang/messages.h"
#include "agent/gang/token.h"

namespace dsj::agent {

/// When to fetch. Pure.
class FetchGate {
 public:
  /// `interval`: the least time between the starts of two fetches, whoever asks and however often.
  FetchGate(Time interval, Time max_age) : interval_(interval), max_age_(max_age) {}

  enum class Lookup { Known, Pending, Unknown };
  /// A token names a key; `known`: it is there. Pending: unknown for now, because a fetch is due,
  /// in flight, or the last one failed.
  Lookup look(bool known, Time now);
  /// True: a fetch is due and begins now.
  bool begin(Time now);
  void ended(bool good, Time now);

 private:
  Time interval_, max_age_;
  std::optional<Time> begun_at_, good_at_;
  bool wanted_ = false, running_ = false;
};

class KeyRing {
 public:
  /// Returns the text of a JWK set. May block.
  using Fetch = std::function<Result<std::string>()>;
  struct Options {
    Time interval{10'000};
    Time max_age{3'600'000};  ///< older keys are fetched again, but used meanwhile
  };

  /// `first`: keys known from the start, so that no API server is needed for these.
  KeyRing(TokenKeys first, Fetch fetch, Options options);
  KeyRing(TokenKeys first, Fetch fetch) : KeyRing(std::move(first), std::move(fetch), Options()) {}
  ~KeyRing();

  struct Found {
    FetchGate::Lookup lookup = FetchGate::Lookup::Unknown;
    std::shared_ptr<const TokenKeys> keys;  ///< the current keys
  };
  Found find(const std::string& key_id);
  int64_t fetches() const;

 private:
  void run();
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<const TokenKeys> keys_;
  const Fetch fetch_;
  FetchGate gate_;
  int64_t fetches_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dsj::agent
