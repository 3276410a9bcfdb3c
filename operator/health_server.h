// /healthz, /readyz and /metrics of the operator, plain HTTP.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace dsj::op {

struct HealthAnswers {
  std::function<bool()> ready;  ///< the caches are filled
  std::function<std::string()> metrics;
};

class HealthServer {
 public:
  virtual ~HealthServer() = default;
};

/// "0.0.0.0:8080". Environment: the port is taken.
Result<std::unique_ptr<HealthServer>> serve_health(const std::string& address,
                                                   HealthAnswers answers);

}  // namespace dsj::op
