// Connects a pod's agent with the other agents: worker 0 listens, the others connect. Clients
// authenticate themselves with tokens, worker 0 with its key.
// Tested by: tests/run/fake/pod_run_test.cc
#pragma once

#include <memory>
#include <string>

#include "agent/join/join_keys.h"
#include "agent/pod.h"
#include "agent/wire/http_transport.h"
#include "common/files/posix_files.h"
#include "kube/http.h"
#include "kube/token_source.h"

namespace dsj::agent {

class PodJoin {
 public:
  /// `root` is the prefix of the mounted paths. `fetches` cancels worker 0's requests to the API
  /// server.
  PodJoin(const std::string& root, kube::Cancel fetches);

  /// Opens worker 0's port, or another worker's client. A single worker needs neither. `api` is
  /// needed for worker 0, for the cluster's token keys; it must outlive this object.
  Status open(const Pod& pod, int replicas, kube::Transport* api);

  /// True if worker 0 has no key to authenticate itself with, so that no other worker can join.
  /// False on other workers.
  bool lacks_key() const { return join_key_ && !join_key_->server(); }

  HttpServer* server() { return server_.get(); }  ///< on worker 0; else null
  HttpClient* client() { return client_.get(); }  ///< on other workers; else null

 private:
  Result<std::shared_ptr<JoinGate>> open_gate(const Pod& pod, int workers, kube::Transport* api);

  const std::string root_;
  const kube::Cancel fetches_;
  PosixFiles files_;
  kube::TokenSource token_;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<JoinKey> join_key_;  ///< on worker 0
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace dsj::agent
