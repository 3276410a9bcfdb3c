// The bearer token of a request. The kubelet rewrites a projected token's file before the token
// expires. The file is reread when it changes; it is checked at most once a minute, and at once
// after a 401. Thread-safe.
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

  /// Empty if no token is used. If the file cannot be read temporarily: the last good token.
  std::string token(Clock::time_point now = Clock::now());
  /// The server refused the token: checks the file at the next request.
  void refused();

 private:
  std::mutex mutex_;
  const std::string fixed_, file_;
  std::string current_;
  Clock::time_point read_at_{};
  bool stale_ = true;
};

}  // namespace dsj::kube
