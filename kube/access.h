// Where the API server is and with what credentials: from a kubeconfig file, or from the files in
// every pod. Secrets stay in this struct and in the transport; they are never logged.
#pragma once

#include <string>

#include "common/result.h"

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
  bool insecure_skip_tls_verify = false;
  std::string default_namespace = "default";
};

/// Reads a kubeconfig's text. `where` names the file; relative paths are relative to its directory,
/// as with kubectl. `context` empty: current-context. BadInput, by name: what is missing or not
/// built (exec and auth-provider plugins, basic auth, impersonation).
Result<Access> access_from_kubeconfig(const std::string& text, const std::string& where,
                                      const std::string& context = {});

/// Reads `path`, else $KUBECONFIG (the first file of the list), else ~/.kube/config.
Result<Access> access_from_kubeconfig_file(const std::string& path = {},
                                           const std::string& context = {});

/// Reads a pod's KUBERNETES_SERVICE_HOST and _PORT, and the files in `directory`.
Result<Access> access_in_cluster(
    const std::string& directory = "/var/run/secrets/kubernetes.io/serviceaccount");

/// In a pod access_in_cluster(), else the kubeconfig.
Result<Access> find_access();

}  // namespace dsj::kube
