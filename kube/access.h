// Where the API server is and with what credentials: from the files in every pod, or from a kubeconfig
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
  std::string server;  ///< "https://10.0.0.1:6443", without a path at the end
  std::string ca_pem;  ///< empty: the system's authorities
  std::string client_certificate_pem;
  std::string client_key_pem;  ///< EC or RSA, PKCS#1, SEC 1 or PKCS#8
  /// The files of the three above, read again when they change; empty: they were inline.
  std::string ca_file, client_certificate_file, client_key_file;
  std::string token;
  std::string token_file;  ///< read again when it changes: projected tokens rotate
  /// Gives a token or a certificate; unset beside a token or a certificate of the kubeconfig's own.
  std::optional<ExecPlugin> plugin;
  /// Of every request: whom the user acts as (Impersonate-User, ...).
  std::vector<std::pair<std::string, std::string>> headers;
  bool insecure_skip_tls_verify = false;
  std::optional<Proxy> proxy;   ///< unset: the server is reached directly
  std::string tls_server_name;  ///< that the server's certificate names; empty: the address's host
  std::string default_namespace = "default";
};

/// The API server of the pod's own cluster, reached without a proxy: HTTPS_PROXY in a pod template is for the way out
/// of the cluster. Reads a pod's KUBERNETES_SERVICE_HOST and _PORT, and the files in `directory`.
Result<Access> access_in_cluster(
    const std::string& directory = "/var/run/secrets/kubernetes.io/serviceaccount");

}  // namespace dsj::kube
