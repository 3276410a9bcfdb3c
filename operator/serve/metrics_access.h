// Who may read the operator's metrics: users whose bearer token the API server authenticates
// (TokenReview) and whom it allows to `get` the non-resource URL /metrics (SubjectAccessReview). A
// ClusterRole grants this, as for Kubernetes' own components.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "common/http/http_listener.h"
#include "kube/client.h"

namespace dsj::op {

/// For one thread.
class MetricsAccess {
 public:
  MetricsAccess(kube::Transport& transport, kube::Clock& clock);

  /// The refusal of a request with this Authorization header; nullopt if it may read. An approval
  /// is cached for a minute, a refusal for ten seconds; a review of a new token takes at most five
  /// seconds.
  /// 401: no token, or one that the API server does not know. 403: the user has no access. 429: too
  /// many unknown tokens at once. 503: the API server did not answer, or the operator must not
  /// create reviews.
  std::optional<HttpAnswer> refuse(const std::string& authorization);

 private:
  struct Verdict {
    std::optional<HttpAnswer> refusal;
    kube::Milliseconds until;
  };
  /// nullopt if the API server gave no answer; that was logged.
  std::optional<Verdict> ask(const std::string& token);
  std::optional<kube::Json> review(const kube::Resource& resource, const kube::Json& spec);

  kube::Client client_;
  kube::Clock& clock_;
  std::map<std::string, Verdict> verdicts_;  ///< by the token's SHA-256: tokens are not stored
  bool complained_ = false;
};

}  // namespace dsj::op
