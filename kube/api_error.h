// A failed request, by the kinds that callers distinguish: from the server's Status object, or
// because there was no answer.
#pragma once

#include <chrono>
#include <expected>
#include <optional>
#include <string>

#include "common/result.h"
#include "kube/http.h"

namespace dsj::kube {

struct ApiError {
  enum class Kind {
    NotFound,
    AlreadyExists,
    Conflict,         ///< another write came first, or another field manager owns a field
    Gone,             ///< the resourceVersion or continue token is too old: list again
    Invalid,          ///< 400, 422: the object violates its schema or a policy
    Forbidden,        ///< RBAC, admission, quota
    Unauthorized,     ///< the credentials were refused
    TooManyRequests,  ///< try again after `retry_after`
    Unavailable,      ///< 500, 502, 503, 504: the server runs but cannot serve
    Network,          ///< no answer; see `net`
    Other,
  } kind = Kind::Other;
  int status = 0;       ///< HTTP; 0 without an answer
  std::string reason;   ///< the server's: "AlreadyExists"
  std::string message;  ///< the server's, or our own
  std::optional<std::chrono::milliseconds> retry_after;
  std::optional<NetError::Kind> net;

  /// Whether the same request may succeed a moment later.
  bool passing() const;
  bool cancelled() const { return net == NetError::Kind::Cancelled; }
  /// "pods \"x\" is forbidden: ... (403 Forbidden)"
  std::string to_string() const;
};

template <typename T>
using ApiResult = std::expected<T, ApiError>;

ApiError from_net(const NetError& error);
/// From an answer other than 2xx. Reads a metav1.Status if the body is one.
ApiError from_response(const Response& response);
/// From an ERROR event of a watch, whose object is a metav1.Status.
ApiError from_status_json(const std::string& status_object);

}  // namespace dsj::kube
