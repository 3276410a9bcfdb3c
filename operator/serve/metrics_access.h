// Who may read the operator's metrics: whoever the API server knows by the bearer token (TokenReview) and lets `get` the
// non-resource URL /metrics (SubjectAccessReview). A ClusterRole grants it, as for Kubernetes' own components.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/http/http_listener.h"
#include "kube/client.h"

namespace dsj::op {

/// One thread.
class MetricsAccess {
 public:
  MetricsAccess(kube::Transport& transport, kube::Clock& clock);

  /// The refusal of a request with this Authorization header; empty: it may read. An answer of the API server holds for a
  /// minute, a refusal for ten seconds; a new token is asked about for at most five seconds.
  /// 401: no token, or none that the API server knows. 403: its owner may not. 429: too many unknown tokens at once. 503: the
  /// API server did not answer, or does not let the operator ask.
  std::optional<HttpAnswer> refuse(const std::string& authorization);

 private:
  struct Verdict {
    std::optional<HttpAnswer> refusal;
    kube::Milliseconds until;
  };
  /// nullopt: the API server gave no answer, which was logged.
  std::optional<Verdict> ask(const std::string& token);
  std::optional<kube::Json> review(const kube::Resource& resource, const kube::Json& spec);

  kube::Client client_;
  kube::Clock& clock_;
  std::map<std::string, Verdict> verdicts_;  ///< by the token's SHA-256: tokens are not kept
  bool complained_ = false;
};

}  // namespace dsj::op
