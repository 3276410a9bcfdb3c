// Who may send beats to worker 0's agent. With `dsj run`: whoever knows the run's random key. In a
// cluster: whoever shows a token of the job's own service account, bound to the pod it speaks for.
#pragma once

#include <atomic>
#include <expected>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "agent/gang/key_ring.h"
#include "agent/gang/messages.h"
#include "agent/gang/token.h"

namespace dsj::agent {

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
  virtual std::expected<void, Denied> permit(const Caller& caller, const WorkerReport& report) = 0;
};

class KeyGate final : public JoinGate {
 public:
  explicit KeyGate(std::string key) : expected_("Bearer " + key) {}
  std::expected<Caller, Denied> admit(std::string_view authorization) override;
  std::expected<void, Denied> permit(const Caller&, const WorkerReport&) override { return {}; }

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
  std::expected<void, Denied> permit(const Caller& caller, const WorkerReport& report) override;
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
