// Decides who may send beats to worker 0's agent. With `dsj run`: callers that know the run's
// random key. In a cluster: callers with a token of the job's own service account, bound to the pod
// that they speak for.
//
// The cluster's public token keys (KeyRing) are fetched again when a token names an unknown key. A
// separate thread fetches them and no caller waits for it: the beat is sent again later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <expected>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "agent/join/token.h"

namespace dsj::agent {

/// Decides when to fetch the keys. Pure.
class FetchGate {
 public:
  using Time = std::chrono::milliseconds;  ///< monotonic
  /// `interval` is the minimum time between the starts of two fetches, regardless of the number of
  /// requests.
  FetchGate(Time interval, Time max_age) : interval_(interval), max_age_(max_age) {}

  enum class Lookup { Known, Pending, Unknown };
  /// A token names a key; `known` tells whether it is available. Pending if it is unknown but a
  /// fetch is due, in flight, or failed last time.
  Lookup look(bool known, Time now);
  /// True if a fetch is due; it begins now.
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
    FetchGate::Time interval{10'000};
    FetchGate::Time max_age{3'600'000};  ///< older keys are fetched again, but used meanwhile
  };

  /// `first` are the keys known from the start, for which no API server is needed.
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

/// An HTTP status and the reason. 401: the caller is not authenticated. 403: the caller is
/// authenticated but not allowed. 503: try again.
struct Denied {
  int status = 401;
  std::string why;
};
struct Caller {
  std::string pod, pod_uid;  ///< empty for a run's key, which is valid for every worker
};

/// Thread-safe.
class JoinGate {
 public:
  virtual ~JoinGate() = default;
  /// Checks the Authorization header only. Called before the body is read.
  virtual std::expected<Caller, Denied> admit(std::string_view authorization) = 0;
  /// Checks whether the caller may speak for this worker and incarnation.
  virtual std::expected<void, Denied> permit(const Caller& caller, int worker,
                                             int64_t incarnation) = 0;
};

class KeyGate final : public JoinGate {
 public:
  explicit KeyGate(std::string key) : expected_("Bearer " + key) {}
  std::expected<Caller, Denied> admit(std::string_view authorization) override;
  std::expected<void, Denied> permit(const Caller&, int, int64_t) override { return {}; }

 private:
  const std::string expected_;
};

class TokenGate final : public JoinGate {
 public:
  using WallSeconds = std::function<int64_t()>;
  TokenGate(std::string job, TokenRules rules, KeyRing& keys, WallSeconds wall, int workers);
  std::expected<Caller, Denied> admit(std::string_view authorization) override;
  /// The token's pod must have the name that the operator gives to this incarnation of this worker.
  /// A pod with the same name but another uid than the first is refused, because the operator did
  /// not create it.
  std::expected<void, Denied> permit(const Caller& caller, int worker,
                                     int64_t incarnation) override;
  /// Number of signatures checked: one per token, not per beat.
  int64_t checked() const { return checked_; }

 private:
  struct Pin {
    int64_t incarnation;
    std::string uid;
  };
  struct Verified {
    std::string key_id;
    TokenClaims claims;
    std::shared_ptr<const TokenKeys> by;  ///< verified again when these keys are replaced
  };
  std::expected<TokenClaims, Denied> verified(std::string_view text);
  const std::string job_;
  const TokenRules rules_;
  KeyRing& keys_;
  const WallSeconds wall_;
  const size_t verified_most_;
  std::atomic<int64_t> checked_ = 0;
  std::mutex mutex_;
  std::map<int, Pin> pins_;
  std::map<std::string, Verified, std::less<>> verified_;  ///< [the token's text]
};

/// Compares in a time that does not depend on where the keys differ.
bool same_key(std::string_view a, std::string_view b);

}  // namespace dsj::agent
