// The admission webhook: an HTTPS server that answers reviews, and a thread that maintains its
// authority in the caBundle of the ValidatingWebhookConfiguration. No Secret holds a key: each
// replica has its own in memory. If cert-manager or another tool makes the certificates and
// maintains the bundle, the thread only reloads the mounted files. Every replica serves, not only
// the leader, because a review writes nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/result.h"
#include "kube/client.h"
#include "operator/webhook/certificate.h"
#include "operator/webhook/review.h"

namespace dsj::op {

inline constexpr int kWebhookPort = 29403;
inline constexpr char kWebhookPath[] = "/validate";
/// Maximum size of a request, which contains the new and the old object; a stored object has at
/// most 1.5 MiB.
inline constexpr size_t kReviewBytesMax = 4 << 20;

struct WebhookOptions {
  std::string address;        ///< ":29403" means all addresses
  std::string configuration;  ///< name of the ValidatingWebhookConfiguration
  /// A directory with tls.crt and tls.key that another tool writes; empty for self-issued ones.
  std::string certificates;
  std::vector<std::string> names;  ///< host names that the API server uses: "SERVICE.NAMESPACE.svc"
  std::string identity;            ///< of this process; the same after a restart of its container
  TryPods try_pods = nullptr;      ///< called on the server's thread
  std::optional<bool> read_only_root = {};  ///< review()'s
};

class Webhook {
 public:
  /// Listens and starts to publish the authority. `reviewed` is called for each answer, on the
  /// server's thread. Environment: the port is in use, or `certificates` has no matching pair.
  static Result<std::unique_ptr<Webhook>> start(WebhookOptions options, kube::Client& client,
                                                kube::Clock& clock,
                                                std::function<void(bool allowed)> reviewed);
  ~Webhook();
  int port() const;
  /// True if the bundle has the authority, or if the first attempt to write it failed (and was
  /// logged): a webhook that cannot be called must not stop jobs from running.
  bool ready() const;

 private:
  struct State;
  explicit Webhook(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A merge patch, with the version that was read as precondition, that sets the caBundle of each
/// webhook to `bundle(caBundle)`; null if nothing changes.
nlohmann::json bundle_patch(const nlohmann::json& configuration,
                            const std::function<std::string(const std::string&)>& bundle);

}  // namespace dsj::op
