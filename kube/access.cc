#include "kube/access.h"

#include <cstdlib>

#include "common/files/posix_files.h"
#include "common/net_address.h"

namespace dsj::kube {
namespace {

constexpr size_t kAccountBytesMax = 4 << 20;

Result<std::string> account_file(const std::string& path) {
  PosixFiles files;
  return files.read_all(path, kAccountBytesMax);
}

std::string pod_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

Result<Access> access_in_cluster(const std::string& directory) {
  const std::string host = pod_variable("KUBERNETES_SERVICE_HOST");
  const std::string port = pod_variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return fail(ErrorKind::Environment, "this is not a pod: KUBERNETES_SERVICE_HOST is not set");
  }
  Access access;
  access.server = "https://" + url_host(host) + ":" + port;
  access.token_file = directory + "/token";
  access.ca_file = directory + "/ca.crt";
  DSJ_TRY(access.ca_pem, account_file(access.ca_file));
  DSJ_TRY(const std::string token, account_file(access.token_file));
  if (token.empty()) {
    return fail(ErrorKind::Environment, "is empty", access.token_file);
  }
  if (auto ns = account_file(directory + "/namespace"); ns && !ns->empty()) {
    access.default_namespace = *ns;
  }
  return access;
}

}  // namespace dsj::kube
