#include "operator/serve/metrics_access.h"

#include <openssl/evp.h>

#include "common/log.h"

namespace dsj::op {
namespace {

using kube::Json;
using kube::Milliseconds;

constexpr Milliseconds kAllowedFor{60'000}, kRefusedFor{10'000}, kPatience{5'000};
/// Maximum number of cached tokens. If all are in use, new tokens are not reviewed, so that a flood
/// of invalid tokens causes at most this many reviews in ten seconds.
constexpr size_t kTokensMax = 64;
constexpr size_t kTokenBytesMax = 16 * 1024;

kube::Resource token_reviews() {
  return {"authentication.k8s.io", "v1", "tokenreviews", "TokenReview", false};
}
kube::Resource access_reviews() {
  return {"authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", false};
}

std::string digest_of(const std::string& token) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  EVP_Digest(token.data(), token.size(), digest, &size, EVP_sha256(), nullptr);
  return {reinterpret_cast<const char*>(digest), size};
}

/// The token of "Bearer TOKEN"; empty if there is none.
std::string bearer_of(const std::string& authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() > kTokenBytesMax || authorization.size() < kScheme.size()) return "";
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return "";
  }
  return authorization.substr(kScheme.size());
}

/// The SubjectAccessReview for the user that a TokenReview found.
Json question_of(const Json& user) {
  Json spec = {{"nonResourceAttributes", {{"path", "/metrics"}, {"verb", "get"}}},
               {"user", user.value("username", "")}};
  if (user.contains("uid")) spec["uid"] = user["uid"];
  if (user.contains("groups")) spec["groups"] = user["groups"];
  if (user.contains("extra")) spec["extra"] = user["extra"];
  return spec;
}

}  // namespace

MetricsAccess::MetricsAccess(kube::Transport& transport, kube::Clock& clock)
    : client_(transport, clock,
              {.attempts = 1, .deadline = kPatience, .request_timeout = kPatience}),
      clock_(clock) {}

std::optional<HttpAnswer> MetricsAccess::refuse(const std::string& authorization) {
  const std::string token = bearer_of(authorization);
  if (token.empty()) return HttpAnswer{401, "a bearer token is expected\n"};
  const Milliseconds now = clock_.monotonic();
  std::erase_if(verdicts_, [&](const auto& entry) { return entry.second.until <= now; });
  const std::string digest = digest_of(token);
  if (const auto known = verdicts_.find(digest); known != verdicts_.end())
    return known->second.refusal;
  if (verdicts_.size() >= kTokensMax) return HttpAnswer{429, "too many tokens at once\n"};
  auto verdict = ask(token);
  if (!verdict) return HttpAnswer{503, "the API server did not say who this is\n"};
  verdict->until = clock_.monotonic() + (verdict->refusal ? kRefusedFor : kAllowedFor);
  return verdicts_.emplace(digest, std::move(*verdict)).first->second.refusal;
}

std::optional<MetricsAccess::Verdict> MetricsAccess::ask(const std::string& token) {
  const auto who = review(token_reviews(), {{"token", token}});
  if (!who) return std::nullopt;
  if (!who->value("authenticated", false) || !who->contains("user")) {
    return Verdict{HttpAnswer{401, "the API server does not know this token\n"}, {}};
  }
  const auto may = review(access_reviews(), question_of((*who)["user"]));
  if (!may) return std::nullopt;
  if (may->value("allowed", false)) return Verdict{};
  return Verdict{HttpAnswer{403, (*who)["user"].value("username", "") + " may not get /metrics\n"},
                 {}};
}

std::optional<Json> MetricsAccess::review(const kube::Resource& resource, const Json& spec) {
  const auto answer = client_.create(
      resource, "",
      {{"apiVersion", resource.api_version()}, {"kind", resource.kind}, {"spec", spec}});
  if (answer) {
    complained_ = false;
    return answer->value("status", Json::object());
  }
  if (!std::exchange(complained_, true)) {
    log::warn("the metrics cannot be read: " + resource.plural + ": " + answer.error().to_string());
  }
  return std::nullopt;
}

}  // namespace dsj::op
