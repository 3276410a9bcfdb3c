// The Transport to a real API server: HTTP/1.1 over TLS by Boost.Beast (kube/connection.h). Calls
// take a kept connection that the server has not closed, or open one; every stream has its own. It
// starts no threads: each call works on the thread that made it.
#pragma once

#include <memory>

#include "common/result.h"
#include "kube/access.h"
#include "kube/http.h"

namespace dsj::kube {

/// Largest answer that is read into memory; a page of 500 pods is about 5 MB.
inline constexpr size_t kResponseBytesMax = 64 << 20;
/// Longest line of a stream.
inline constexpr size_t kLineBytesMax = 16 << 20;
/// Connections kept between calls, and for how long.
inline constexpr size_t kIdleConnectionsMax = 32;
inline constexpr std::chrono::seconds kIdleTime{30};

/// BadInput: an address that is none, a certificate or key that OpenSSL does not read, or that are
/// not one another's.
Result<std::unique_ptr<Transport>> make_api_transport(const Access& access);

}  // namespace dsj::kube
