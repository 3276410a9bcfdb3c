// The operator's /metrics over HTTPS, for users whom the API server allows to read them. The
// certificate is self-issued, in memory, and renewed each day; scrapers do not verify it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/http/http_listener.h"
#include "kube/client.h"

namespace dsj::op {

/// `metrics` is called on the server's thread. `transport` is used for reviews and must outlive the
/// server. Environment: the port is in use. Internal: OpenSSL fails.
Result<std::unique_ptr<HttpListener>> serve_metrics(const std::string& address,
                                                    const std::string& identity,
                                                    kube::Transport& transport, kube::Clock& clock,
                                                    std::function<std::string()> metrics);

}  // namespace dsj::op
