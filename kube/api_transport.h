// The Transport to a real API server: HTTP/1.1 over TLS with Boost.Beast (kube/connection.h). A
// call uses a kept connection that the server has not closed, or opens one; every stream has its
// own. There are no threads: each call runs on the caller's thread.
#pragma once

#include <memory>

#include "common/result.h"
#include "kube/access.h"
#include "kube/http.h"

namespace dsj::kube {

/// The largest answer that is read into memory. A page of 500 pods has about 5 MB.
inline constexpr size_t kResponseBytesMax = 64 << 20;
/// The longest line of a stream.
inline constexpr size_t kLineBytesMax = 16 << 20;
/// The default number of connections that are kept between calls, and for how long.
inline constexpr size_t kIdleConnectionsMax = 32;
inline constexpr std::chrono::seconds kIdleTime{30};

/// Errors: BadInput if the address is malformed, if OpenSSL cannot read a
/// certificate or key, or if these do not match. `idle_max`: the number of kept
/// connections; at least the number of concurrent calls, otherwise each burst opens
/// new connections.
Result<std::unique_ptr<Transport>> make_api_transport(const Access& access,
                                                      size_t idle_max = kIdleConnectionsMax);

}  // namespace dsj::kube
