// The admission webhook: an HTTPS server that answers reviews, and a thread that keeps its
// authority in the caBundle of the ValidatingWebhookConfiguration. No Secret holds a key: each
// replica has its own, in memory. Or somebody else (cert-manager) makes the certificates and keeps
// the bundle; then the thread only reads the mounted files again. Every replica serves, leader or
// not, because a review writes nothing.
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
/// The most bytes of a request, which holds object and old object; a stored object has at most 1.5
/// MiB.
inline constexpr size_t kReviewBytesMax = 4 << 20;

struct WebhookOptions {
  std::string address;        ///< ":29403": on all addresses
  std::string configuration;  ///< the ValidatingWebhookConfiguration's name
  /// A directory with tls.crt and tls.key, which others write; empty: our own certificates.
  std::string certificates;
  std::vector<std::string> names;  ///< the names that the API server calls: "SERVICE.NAMESPACE.svc"
  std::string identity;            ///< this process's; the same after a restart of its container
  TryPods try_pods = nullptr;      ///< called on the server's thread
};

class Webhook {
 public:
  /// Listens and starts to publish. `reviewed` is called for each answer, on the server's thread.
  /// Environment: the port is taken, or `certificates` has no pair that fits together.
  static Result<std::unique_ptr<Webhook>> start(WebhookOptions options, kube::Client& client,
                                                kube::Clock& clock,
                                                std::function<void(bool allowed)> reviewed);
  ~Webhook();
  int port() const;
  /// The bundle has the authority, or the first attempt to put it there failed (and was logged): a
  /// replica that cannot be called must not keep jobs from running.
  bool ready() const;

 private:
  struct State;
  explicit Webhook(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A merge patch, valid for the version that was read, that puts `bundle(seen)` into each webhook
/// of `configuration`; null: nothing changes.
nlohmann::json bundle_patch(const nlohmann::json& configuration,
                            const std::function<std::string(const std::string&)>& bundle);

}  // namespace dsj::op
