// The operator's /healthz and /readyz over plain HTTP, and /metrics where everybody may read them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/http/http_listener.h"

namespace dsj::op {

/// Called on the server's thread.
struct HealthAnswers {
  std::function<std::string()> not_ready;  ///< why not; empty: ready
  std::function<std::string()> metrics;    ///< empty: they are elsewhere
};

/// `address`: ":8080". Environment: the port is taken.
Result<std::unique_ptr<HttpListener>> serve_health(const std::string& address,
                                                   HealthAnswers answers);

}  // namespace dsj::op
