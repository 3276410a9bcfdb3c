// Who may send beats to worker 0's agent. With `dsj run`: whoever knows the run's random key. In a
// cluster: whoever shows a token of the job's own service account, bound to the pod it speaks for.
//
// The cluster's public token keys (KeyRing) are fetched again when a token names an unknown key. The fetch runs on a
// thread of its own and nobody waits for it: a beat is simply sent again.
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

/// When to fetch. Pure.
class FetchGate {
 public:
  using Time = std::chrono::milliseconds;  ///< monotonic
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
    FetchGate::Time interval{10'000};
    FetchGate::Time max_age{3'600'000};  ///< older keys are fetched again, but used meanwhile
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

/// An HTTP status and the reason. 401: nobody vouches for the caller. 403: the caller is known but
/// not allowed. 503: ask again.
struct Denied {
  int status = 401;
  std::string why;
};
struct Caller {
  std::string pod, pod_uid;  ///< empty with a key, which speaks for every worker
};

/// Thread-safe.
class JoinGate {
 public:
  virtual ~JoinGate() = default;
  /// Judges the Authorization header alone. Called before a body is read.
  virtual std::expected<Caller, Denied> admit(std::string_view authorization) = 0;
  /// Judges whether the caller may speak for this worker and incarnation.
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
  /// The token's pod must be the one that the operator made for this incarnation of this worker. A
  /// pod of the same name with another uid than the first is refused: somebody else made it.
  std::expected<void, Denied> permit(const Caller& caller, int worker,
                                     int64_t incarnation) override;
  /// Signatures checked so far: one per token, not per beat.
  int64_t checked() const { return checked_; }

 private:
  struct Pin {
    int64_t incarnation;
    std::string uid;
  };
  struct Verified {
    std::string key_id;
    TokenClaims claims;
    std::shared_ptr<const TokenKeys> by;  ///< with newer keys it is verified again
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
