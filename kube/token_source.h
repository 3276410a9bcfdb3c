// The bearer token of a request. A projected token's file is rewritten by the kubelet before the
// token ends: it is read again when the file changed, looked at once a minute at most, and at once
// after the server said 401. Thread-safe.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "kube/access.h"

namespace dsj::kube {

class TokenSource {
 public:
  using Clock = std::chrono::steady_clock;
  explicit TokenSource(const Access& access) : fixed_(access.token), file_(access.token_file) {}

  /// Empty: no token is used. The last good token when the file cannot be read for a moment.
  std::string token(Clock::time_point now = Clock::now());
  /// The server did not accept the token: look at the file at the next request.
  void refused();
  bool from_file() const { return !file_.empty(); }

 private:
  std::mutex mutex_;
  const std::string fixed_, file_;
  std::string current_;
  Clock::time_point read_at_{};
  bool stale_ = true;
};

}  // namespace dsj::kube
