// The Transport to a real API server: HTTP/1.1 over TLS by Boost.Beast (kube/connection.h). A call
// takes a kept connection that the server has not closed, or opens one; every stream has its own.
// There are no threads: each call runs on the thread that made it.
#pragma once

#include <memory>

#include "common/result.h"
#include "kube/access.h"
#include "kube/http.h"

namespace dsj::kube {

/// The largest answer that is read into memory. A page of 500 pods is about 5 MB.
inline constexpr size_t kResponseBytesMax = 64 << 20;
/// The longest line of a stream.
inline constexpr size_t kLineBytesMax = 16 << 20;
/// How many connections are kept between calls unless the caller says otherwise, and for how long.
inline constexpr size_t kIdleConnectionsMax = 32;
inline constexpr std::chrono::seconds kIdleTime{30};

/// BadInput: the address is not one, OpenSSL cannot read a certificate or key, or they do not
/// belong together.
/// `idle_max`: connections that are kept; at least as many as there are calls at a time, or each burst
/// opens the rest anew.
Result<std::unique_ptr<Transport>> make_api_transport(const Access& access,
                                                      size_t idle_max = kIdleConnectionsMax);

}  // namespace dsj::kube
