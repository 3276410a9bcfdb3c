// The cluster's public token keys, fetched again when a token names a key that is not known. The
// fetch runs on a thread of its own; nobody waits for it: a beat is simply sent again.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "agent/messages.h"
#include "agent/token.h"

namespace dsj::agent {

/// When to fetch. Pure.
class FetchGate {
 public:
  /// `interval`: fetches begin at least so far apart, whoever asks and however often.
  FetchGate(Time interval, Time max_age) : interval_(interval), max_age_(max_age) {}

  enum class Lookup { Known, Pending, Unknown };
  /// A token names a key; `known`: it is there. Pending: its answer is not yet known, because a
  /// fetch is due, under way, or the last one failed.
  Lookup look(bool known, Time now);
  /// A fetch is due; it begins now.
  bool begin(Time now);
  void ended(bool good, Time now);

 private:
  Time interval_, max_age_;
  std::optional<Time> begun_at_, good_at_;
  bool wanted_ = false, running_ = false;
};

class KeyRing {
 public:
  /// The text of a JWK set; blocks.
  using Fetch = std::function<Result<std::string>()>;
  struct Options {
    Time interval{10'000};
    Time max_age{3'600'000};  ///< older keys are fetched again, and used meanwhile
  };

  /// `first`: keys known from the start, so that an API server that is away is not needed.
  KeyRing(TokenKeys first, Fetch fetch, Options options);
  KeyRing(TokenKeys first, Fetch fetch) : KeyRing(std::move(first), std::move(fetch), Options()) {}
  ~KeyRing();

  struct Found {
    FetchGate::Lookup lookup = FetchGate::Lookup::Unknown;
    std::shared_ptr<const TokenKeys> keys;  ///< those of the moment
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
