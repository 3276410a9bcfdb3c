// The operator's /healthz and /readyz over plain HTTP, and /metrics if it is not restricted.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/http/http_listener.h"

namespace dsj::op {

/// Called on the server's thread.
struct HealthAnswers {
  std::function<std::string()> not_ready;  ///< the reason, or empty if ready
  std::function<std::string()> metrics;    ///< null if /metrics has its own port
};

/// `address` is like ":8080". Environment: the port is in use.
Result<std::unique_ptr<HttpListener>> serve_health(const std::string& address,
                                                   HealthAnswers answers);

}  // namespace dsj::op
