// The operator's /metrics over HTTPS, for readers whom the API server lets read them. The certificate is the operator's own,
// in memory and renewed each day; a scraper does not check it.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/http/http_listener.h"
#include "kube/client.h"

namespace dsj::op {

/// `metrics` is called on the server's thread. `transport` asks the API server about readers, and lives longer.
/// Environment: the port is taken. Internal: OpenSSL fails.
Result<std::unique_ptr<HttpListener>> serve_metrics(const std::string& address,
                                                    const std::string& identity,
                                                    kube::Transport& transport, kube::Clock& clock,
                                                    std::function<std::string()> metrics);

}  // namespace dsj::op
