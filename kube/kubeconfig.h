// Kubeconfig files, read and merged by kubectl's rules. Several files ($KUBECONFIG, separated by ':') are one: the
// first that has an entry of a name has the whole entry, the first that names a current-context has it, and a file
// that is not there is left out. A relative path in a file is relative to that file.
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

/// `context` empty: current-context. BadInput, by name: what is missing, wrong, or not built (auth-provider, basic
/// authentication). The proxy is the file's, else the environment's (kube/proxy.h). To a server of plain http no
/// credentials are sent, as by client-go: the result has none, but keeps whom the user acts as.
Result<Access> access_from_kubeconfig(const std::vector<KubeconfigText>& files,
                                      const std::string& context = {});

/// Reads `path`, else $KUBECONFIG's files, else ~/.kube/config. Environment: there is no such file.
Result<Access> access_from_kubeconfig_file(const std::string& path = {},
                                           const std::string& context = {});

/// As kubectl finds it: a kubeconfig, else in a pod its account. For programs that a person starts.
Result<Access> find_users_access(const std::string& path = {}, const std::string& context = {});

/// In a pod its account, else the kubeconfig. For programs that the operator's pods start.
Result<Access> find_access();

}  // namespace dsj::kube
