#include "agent/pod_join.h"

#include <ctime>

#include "job/contract.h"
#include "job/join_keys.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

}  // namespace

PodJoin::PodJoin(const std::string& root, kube::Cancel fetches)
    : root_(root),
      fetches_(std::move(fetches)),
      token_(kube::Access{.token_file = path_join(root + kTokenMountPath, kTokenFile)}) {}

Result<std::shared_ptr<JoinGate>> PodJoin::open_gate(const Pod& pod, int workers,
                                                     kube::Transport* api) {
  DSJ_TRY(const Token own, parse_token(token_.token()));
  TokenKeys first;
  const std::string keys_file = path_join(root_ + kConfigMountPath, kTokenKeysFile);
  if (const auto text = files_.read_all(keys_file, 1 << 20)) {
    DSJ_TRY(first, TokenKeys::from_jwks(*text, keys_file));
  }
  const auto fetch = [api, cancel = fetches_]() -> Result<std::string> {
    const auto answer = api->call({.path = "/openid/v1/jwks", .timeout = Time(10'000)}, cancel);
    if (!answer) return fail(ErrorKind::Transient, answer.error().message, "/openid/v1/jwks");
    if (answer->status == 200) return answer->body;
    return fail(ErrorKind::Transient, "the API server answered " + std::to_string(answer->status),
                "/openid/v1/jwks");
  };
  keys_ = std::make_unique<KeyRing>(std::move(first), fetch);
  return std::make_shared<TokenGate>(
      pod.job, token_rules(pod, own.claims.issuer), *keys_,
      [] { return static_cast<int64_t>(std::time(nullptr)); }, workers);
}

Status PodJoin::open(const Pod& pod, int replicas, kube::Transport* api) {
  if (replicas == 1) return {};
  if (pod.authority.empty()) {
    return fail(ErrorKind::Environment, "the pod names no authority of worker 0's key",
                kEnvJoinAuthority, "an operator of this agent's release sets it");
  }
  if (pod.worker == 0) {
    DSJ_TRY(auto gate, open_gate(pod, replicas, api));
    join_key_ = std::make_unique<JoinKey>(root_ + kJoinKeyMountPath, pod.authority);
    DSJ_TRY(server_, HttpServer::open(pod.ip, kJoinPort, std::move(gate), replicas,
                                      [this] { return join_key_->server(); }));
    return {};
  }
  Credentials credentials{[this] { return token_.token(); }, [this] { token_.refused(); },
                          pod.authority};
  const std::string resolver = files_.read_all(root_ + "/etc/resolv.conf", 64 << 10).value_or("");
  client_ = std::make_unique<HttpClient>(
      [name = pod.worker_zero_host,
       host = absolute_host(pod.worker_zero_host, pod.ns, resolver)]() -> Result<Endpoint> {
        return Endpoint{host, kJoinPort, name};
      },
      std::move(credentials), Time(5000));
  return {};
}

}  // namespace dsj::agent
