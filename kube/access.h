// The API server's address and credentials: from the files in every pod, or from a kubeconfig
// (kube/kubeconfig.h). Secrets stay in this struct and in the transport; they are never logged.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "kube/exec_plugin.h"
#include "kube/proxy.h"

namespace dsj::kube {

struct Access {
  std::string server;  ///< "https://10.0.0.1:6443", without a trailing path
  std::string ca_pem;  ///< empty: the system's authorities
  std::string client_certificate_pem;
  std::string client_key_pem;  ///< EC or RSA, PKCS#1, SEC 1 or PKCS#8
  /// The files of the three above, reread when they change; empty if they were inline.
  std::string ca_file, client_certificate_file, client_key_file;
  std::string token;
  std::string token_file;  ///< reread when it changes, because projected tokens rotate
  /// Provides a token or a certificate; unset if the kubeconfig has one itself.
  std::optional<ExecPlugin> plugin;
  /// Sent with every request: the user to impersonate (Impersonate-User, ...).
  std::vector<std::pair<std::string, std::string>> headers;
  bool insecure_skip_tls_verify = false;
  std::optional<Proxy> proxy;   ///< unset: direct connections
  std::string tls_server_name;  ///< expected in the server's certificate; empty: the address's host
  std::string default_namespace = "default";
};

/// The API server of the pod's own cluster, without a proxy: HTTPS_PROXY in a pod template is for connections out of
/// the cluster. Reads KUBERNETES_SERVICE_HOST and _PORT, and the files in `directory`.
Result<Access> access_in_cluster(
    const std::string& directory = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace dsj::kube
