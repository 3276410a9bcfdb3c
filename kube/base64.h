// Bytes as base64 (RFC 4648, with padding), by OpenSSL.
// Tested by: tests/kube/kubeconfig_test.cc, tests/kube/proxy_test.cc
#pragma once

#include <string>

namespace dsj::kube {

std::string to_base64(const std::string& bytes);

}  // namespace dsj::kube
