// How a pod's agent meets those of the other workers: worker 0 listens, the others call it. Tokens say
// who calls, and worker 0's keys say who listens.
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
  /// `root`: before the paths that the operator mounts. `fetches`: ends what worker 0 asks the API
  /// server.
  PodJoin(const std::string& root, kube::Cancel fetches);

  /// Opens worker 0's port, or another worker's way to it. One worker alone needs neither.
  /// `api`: worker 0's, for the cluster's token keys; it must outlive this object.
  Status open(const Pod& pod, int replicas, kube::Transport* api);

  /// Worker 0 has nothing to prove itself with, and no other worker can join. False for the others.
  bool lacks_key() const { return proves_ && !join_keys_->server(); }

  HttpServer* server() { return server_.get(); }  ///< of worker 0; else null
  HttpClient* client() { return client_.get(); }  ///< of the others; else null

 private:
  Result<std::shared_ptr<JoinGate>> open_gate(const Pod& pod, int workers, kube::Transport* api);

  const std::string root_;
  const kube::Cancel fetches_;
  PosixFiles files_;
  kube::TokenSource token_;
  std::unique_ptr<KeyRing> keys_;
  std::unique_ptr<JoinKeys> join_keys_;
  bool proves_ = false;  ///< worker 0, with keys
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpClient> client_;
};

}  // namespace dsj::agent
