// Reads and merges kubeconfig files by kubectl's rules. Several files ($KUBECONFIG, separated by
// ':') are merged: the first entry of a name wins as a whole, the first current-context wins, and a
// missing file is ignored. A relative path in a file is relative to that file.
// Tested by: tests/kube/kubeconfig_test.cc
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "kube/access.h"

namespace dsj::kube {

struct KubeconfigText {
  std::string text;
  std::string where;  ///< its file
};

/// `context` empty: current-context. Errors: BadInput with the name of what is missing, wrong, or not built
/// (auth-provider, basic authentication). The proxy is the file's, else the environment's (kube/proxy.h). For a
/// server of plain http the result has no credentials, as in client-go, but still impersonates.
Result<Access> access_from_kubeconfig(const std::vector<KubeconfigText>& files,
                                      const std::string& context = {});

/// Reads `path`, else $KUBECONFIG's files, else ~/.kube/config. Environment if there is none.
Result<Access> access_from_kubeconfig_file(const std::string& path = {},
                                           const std::string& context = {});

/// As kubectl: a kubeconfig, else a pod's service account. For programs that a user starts.
Result<Access> find_users_access(const std::string& path = {}, const std::string& context = {});

/// A pod's service account, else the kubeconfig. For programs that the operator's pods start.
Result<Access> find_access();

}  // namespace dsj::kube
