// Transport over cpprestsdk (HTTP/1.1, TLS by OpenSSL). Calls share one client, whose connections
// are kept; every stream has a client of its own, because cpprestsdk's timeout holds for each read
// and must be longer there than a watch is quiet.
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

/// BadInput: a certificate or key that OpenSSL does not read.
Result<std::unique_ptr<Transport>> make_cpprest_transport(const Access& access);

}  // namespace dsj::kube
